// Keys and values of prompts computed earlier, found by their tokens.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/prefix_store.h"
#include "kv/segment.h"
#include "model/rows.h"

namespace pd {

// A trie of runs of tokens, each with its segment. Finds prefixes of any length, not only whole runs: a run
// is split where texts diverge, and both parts view the same memory. Segments already returned stay valid
// when the cache drops them. Not thread-safe.
//
// All segments must come from devices that would compute the same run again. The cache's owner ensures it;
// the store below separates runs on disk by KvIdentity.
class PrefixCache {
 public:
  // `limit`: bytes of keys and values in memory; the least recently used are evicted first.
  // `stores`: TakeNew will be called.
  PrefixCache(const ModelSpec& spec, size_t limit, bool stores)
      : spec_(spec), limit_(limit), stores_(stores) {}

  struct Hit {
    int tokens = 0;
    std::vector<KvSegment> segments;  // of tokens 0 to tokens - 1, in order
  };
  // The longest prefix of `tokens` that is in memory.
  Hit Find(std::span<const TokenId> tokens, const Variant& variant);

  // `segment` holds tokens [first, tokens.size()) in memory of its own (Compact). A part that is already
  // known is not kept twice. Keeps nothing when tokens before `first` are not known or the segment exceeds
  // the limit.
  void Insert(std::span<const TokenId> tokens, int first, const KvSegment& segment);

  size_t bytes() const { return bytes_; }  // in memory
  size_t BytesOf(const KvSegment& segment) const { return CompactBytes(segment, spec_); }

  // ---- disk tier ----

  // A run that is on disk and not in memory.
  void InsertStored(std::span<const TokenId> tokens, int first, const Variant& variant,
                    std::shared_ptr<const StoredRun> stored);
  // Runs on the longest known prefix of `tokens` that are only on disk.
  std::vector<std::shared_ptr<const StoredRun>> Unloaded(std::span<const TokenId> tokens,
                                                         const Variant& variant);
  // Reports that a run was loaded, or failed to load: then the run and its continuations are forgotten.
  void Loaded(const std::shared_ptr<const StoredRun>& run, const std::optional<KvSegment>& segment);
  // What Insert kept since the last call and should be written to disk. Stored reports that one was written.
  struct New {
    std::vector<TokenId> tokens;  // from token 0 to the end of the segment
    int first = 0;
    KvSegment segment;
  };
  std::vector<New> TakeNew();
  void Stored(const New& run, std::shared_ptr<const StoredRun> stored);

 private:
  struct Node {
    Node* parent = nullptr;  // nullptr: a root, which has no tokens
    int first = 0;
    std::vector<TokenId> tokens;
    std::optional<KvSegment> segment;
    std::shared_ptr<const StoredRun> stored;
    std::map<TokenId, std::unique_ptr<Node>> children;  // by their first token
    uint64_t used = 0;
    int end() const { return first + int(tokens.size()); }
  };
  struct Match {
    std::vector<Node*> path;  // without the root
    int tokens = 0;           // the last node may match in part
  };

  Node& Root(const Variant& variant) { return roots_[variant]; }
  Match Walk(std::span<const TokenId> tokens, const Variant& variant);
  static int Usable(const Match& match);
  void SplitAt(Node& node, int token);
  Node* Attach(std::span<const TokenId> tokens, int first, const Variant& variant);
  void SetSegment(Node& node, const KvSegment& segment, size_t block_bytes);
  void DropSegment(Node& node);
  void Remove(Node& node);
  void Shrink();
  static bool FindOldest(Node& node, Node*& oldest);
  template <class F>
  static void ForEach(Node& node, const F& f);

  const ModelSpec& spec_;
  const size_t limit_;
  const bool stores_;
  std::map<Variant, Node> roots_;  // texts of different variants share nothing
  // Memory owned by segments, by owner: bytes, and how many nodes view it.
  struct Block {
    size_t bytes = 0;
    int nodes = 0;
  };
  std::unordered_map<const void*, Block> blocks_;
  size_t bytes_ = 0;
  uint64_t clock_ = 0;
  std::vector<New> new_;
};

}  // namespace pd
