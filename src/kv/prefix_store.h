// Runs of a prefix cache in files, so that they survive a restart.
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

// A run in a file of its own.
struct StoredRun {
  std::filesystem::path file;
};

// What a file's header says. Its keys and values follow, as Compact lays them out.
struct StoredHeader {
  KvSegment segment;            // without memory
  uint64_t before = 0;          // TokensDigest of tokens [0, segment.first)
  std::vector<TokenId> tokens;  // from segment.first on
  uint64_t payload_digest = 0;
  size_t payload_at = 0;  // bytes from the start of the file
};

uint64_t TokensDigest(std::span<const TokenId> tokens);

// Strict: throws kCorruptFile for whatever does not fit together, `where` being the file's name. The payload
// is only measured. `spec` is the model's; a header of another model has another id.spec, no layers, and is
// not held against it.
StoredHeader ReadStoredHeader(std::span<const std::byte> file, const ModelSpec& spec,
                              const std::string& where);

// A folder of runs of one or several models and ways to compute them, at most `limit` bytes of them: the
// longest unused are deleted first. Several processes may share it. Not thread-safe. A damaged file is not an
// error but a warning, and the file is ignored.
class PrefixStore {
 public:
  // Of the runs in the folder only those of `id`, but for its variant, are there for the caller. Creates the
  // folder; throws kDevice when it cannot.
  PrefixStore(std::filesystem::path folder, const ModelSpec& spec, const KvIdentity& id, size_t limit);

  struct Entry {
    std::vector<TokenId> tokens;  // from token 0
    int first = 0;                // of the run
    Variant variant;
    std::shared_ptr<const StoredRun> run;
  };
  // What the folder has of this model, each after the run that it continues. Runs without their beginning are
  // deleted.
  std::vector<Entry> Scan();

  // `segment` holds tokens [first, tokens.size()), in Compact's layout. It is filed under the store's
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
