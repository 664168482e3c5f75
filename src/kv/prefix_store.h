// Stores runs of a prefix cache in files, so that they survive a restart.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kv/segment.h"
#include "model/rows.h"

namespace pd {

// A run in its own file.
struct StoredRun {
  std::filesystem::path file;
};

// The contents of a file's header. The keys and values follow it, as Compact lays them out.
struct StoredHeader {
  KvSegment segment;            // without memory
  uint64_t before = 0;          // TokensDigest of tokens [0, segment.first)
  std::vector<TokenId> tokens;  // starting at segment.first
  uint64_t payload_digest = 0;
  size_t payload_at = 0;  // bytes from the start of the file
};

uint64_t TokensDigest(std::span<const TokenId> tokens);

// Strict: throws kCorruptFile for any inconsistency, with the file name `where`. Only the size of the payload
// is checked. `spec` is the model's; the header of another model is no error, but has another id.spec and no
// layers.
StoredHeader ReadStoredHeader(std::span<const std::byte> file, const ModelSpec& spec,
                              const std::string& where);

// A folder of runs of one or more models and ways to compute them, at most `limit` bytes: the runs unused for
// the longest time are deleted first. Several processes may share it. Not thread-safe. A damaged file is
// ignored with a warning.
class PrefixStore {
 public:
  // Serves only runs that match `id`, except for its variant. Creates the folder; throws kDevice when it
  // cannot.
  PrefixStore(std::filesystem::path folder, const ModelSpec& spec, const KvIdentity& id, size_t limit);

  struct Entry {
    std::vector<TokenId> tokens;  // from token 0
    int first = 0;                // of the run
    Variant variant;
    std::shared_ptr<const StoredRun> run;
  };
  // The runs of this model in the folder, each after the run that it continues. Runs without their beginning
  // are deleted.
  std::vector<Entry> Scan();

  // `segment` holds tokens [first, tokens.size()), in Compact's layout. It is stored under the store's
  // identity and the segment's variant. nullptr: it could not be written.
  std::shared_ptr<const StoredRun> Write(std::span<const TokenId> tokens, int first,
                                         const KvSegment& segment);
  // A view of the mapped file, its checksum verified.
  std::optional<KvSegment> Read(const StoredRun& run);

  std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }  // one line each

 private:
  void MakeRoom(size_t bytes);

  const std::filesystem::path folder_;
  const ModelSpec& spec_;
  const KvIdentity id_;
  const size_t limit_;
  std::vector<std::string> warnings_;
};

}  // namespace pd
