#include "kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pd {
// ---- lookup ----

PrefixCache::Match PrefixCache::Walk(std::span<const TokenId> tokens, const Variant& variant) {
  Match match;
  Node* node = &Root(variant);
  while (match.tokens < int(tokens.size())) {
    const auto child = node->children.find(tokens[size_t(match.tokens)]);
    if (child == node->children.end()) break;
    node = child->second.get();
    match.path.push_back(node);
    const auto rest = tokens.subspan(size_t(match.tokens));
    const auto [here, there] = std::ranges::mismatch(node->tokens, rest);
    match.tokens += int(here - node->tokens.begin());
    if (here != node->tokens.end()) break;
  }
  return match;
}

// The tokens of the match that are in memory without a gap from the start.
int PrefixCache::Usable(const Match& match) {
  for (const Node* node : match.path)
    if (!node->segment) return node->first;
  return match.tokens;
}

PrefixCache::Hit PrefixCache::Find(std::span<const TokenId> tokens, const Variant& variant) {
  const Match match = Walk(tokens, variant);
  Hit hit{Usable(match), {}};
  ++clock_;
  for (Node* node : match.path) {
    if (node->first >= hit.tokens) break;
    node->used = clock_;
    const int count = std::min(node->end(), hit.tokens) - node->first;
    hit.segments.push_back(Slice(*node->segment, node->first, count));
  }
  return hit;
}

// ---- insertion and eviction ----

void PrefixCache::SplitAt(Node& node, int token) {
  PD_CHECK(token > node.first && token < node.end());
  auto tail = std::make_unique<Node>();
  const auto cut = node.tokens.begin() + (token - node.first);
  tail->parent = &node;
  tail->first = token;
  tail->tokens.assign(cut, node.tokens.end());
  tail->stored = node.stored;
  tail->children = std::move(node.children);
  tail->used = node.used;
  for (auto& [id, child] : tail->children) child->parent = tail.get();
  if (node.segment) {
    const KvSegment whole = *node.segment;
    SetSegment(*tail, Slice(whole, token, node.end() - token), 0);  // its memory is already counted
    node.segment = Slice(whole, node.first, token - node.first);
  }
  node.tokens.erase(cut, node.tokens.end());
  node.children.clear();
  node.children[tail->tokens.front()] = std::move(tail);
}

// A new node for the unknown part of `tokens`; nullptr when all of it is known, or when tokens before `first`
// are not.
PrefixCache::Node* PrefixCache::Attach(std::span<const TokenId> tokens, int first, const Variant& variant) {
  const Match match = Walk(tokens, variant);
  if (match.tokens < first || match.tokens == int(tokens.size())) return nullptr;
  Node* parent = match.path.empty() ? &Root(variant) : match.path.back();
  if (match.tokens < parent->end()) SplitAt(*parent, match.tokens);
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->first = match.tokens;
  node->tokens.assign(tokens.begin() + match.tokens, tokens.end());
  node->used = ++clock_;
  return (parent->children[node->tokens.front()] = std::move(node)).get();
}

void PrefixCache::Insert(std::span<const TokenId> tokens, int first, const KvSegment& segment) {
  if (CompactBytes(segment, spec_) > limit_) return;
  Node* node = Attach(tokens, first, segment.id.variant);
  if (!node) return;
  KvSegment kept = segment;
  if (node->first > first)  // its beginning is known: that memory is not worth keeping
    kept = Compact(Slice(segment, node->first, node->end() - node->first), spec_);
  SetSegment(*node, kept, CompactBytes(kept, spec_));
  if (stores_) new_.push_back({{tokens.begin(), tokens.end()}, node->first, std::move(kept)});
  Shrink();
}

// `block_bytes`: size of all the memory that the segment's owner holds.
void PrefixCache::SetSegment(Node& node, const KvSegment& segment, size_t block_bytes) {
  PD_CHECK(!node.segment);
  node.segment = segment;
  const auto [block, is_new] = blocks_.try_emplace(segment.owner.get());
  if (is_new) bytes_ += block->second.bytes = block_bytes;
  ++block->second.nodes;
}

void PrefixCache::DropSegment(Node& node) {
  if (!node.segment) return;
  const auto block = blocks_.find(node.segment->owner.get());
  node.segment.reset();
  if (--block->second.nodes > 0) return;
  bytes_ -= block->second.bytes;
  blocks_.erase(block);
}

template <class F>
void PrefixCache::ForEach(Node& node, const F& f) {
  for (auto& [id, child] : node.children) {
    ForEach(*child, f);
    f(*child);
  }
}

void PrefixCache::Remove(Node& node) {
  ForEach(node, [this](Node& child) { DropSegment(child); });
  DropSegment(node);
  node.parent->children.erase(node.tokens.front());
}

// Evicts the least recently used node whose segment may go: one that is also on disk, or that no other node
// in memory continues. Returns whether the node or one below it is in memory.
bool PrefixCache::FindOldest(Node& node, Node*& oldest) {
  bool below = false;
  for (auto& [id, child] : node.children) below |= FindOldest(*child, oldest);
  const bool may_go = node.segment && (node.stored || !below);
  if (may_go && (!oldest || node.used < oldest->used)) oldest = &node;
  return below || node.segment.has_value();
}

void PrefixCache::Shrink() {
  while (bytes_ > limit_) {
    Node* oldest = nullptr;
    for (auto& [variant, root] : roots_) FindOldest(root, oldest);
    PD_CHECK(oldest);
    if (oldest->stored) {
      DropSegment(*oldest);
    } else {
      Remove(*oldest);
    }
  }
}

// ---- disk tier ----

void PrefixCache::InsertStored(std::span<const TokenId> tokens, int first, const Variant& variant,
                               std::shared_ptr<const StoredRun> stored) {
  if (Node* node = Attach(tokens, first, variant)) node->stored = std::move(stored);
}

std::vector<std::shared_ptr<const StoredRun>> PrefixCache::Unloaded(std::span<const TokenId> tokens,
                                                                    const Variant& variant) {
  std::vector<std::shared_ptr<const StoredRun>> runs;
  for (const Node* node : Walk(tokens, variant).path)
    if (!node->segment && node->stored && (runs.empty() || runs.back() != node->stored))
      runs.push_back(node->stored);
  return runs;
}

void PrefixCache::Loaded(const std::shared_ptr<const StoredRun>& run,
                         const std::optional<KvSegment>& segment) {
  std::vector<Node*> nodes;  // one, or the parts that it was cut into
  for (auto& [variant, root] : roots_)
    ForEach(root, [&](Node& node) {
      if (node.stored == run) nodes.push_back(&node);
    });
  std::ranges::sort(nodes, {}, &Node::first);
  for (Node* node : nodes) {
    if (!segment) node->stored.reset();
    if (node->segment) continue;
    if (!segment) {
      Remove(*node);  // and the parts after it
      break;
    }
    SetSegment(*node, Slice(*segment, node->first, node->end() - node->first), CompactBytes(*segment, spec_));
    node->used = ++clock_;
  }
  Shrink();
}

std::vector<PrefixCache::New> PrefixCache::TakeNew() { return std::exchange(new_, {}); }

void PrefixCache::Stored(const New& run, std::shared_ptr<const StoredRun> stored) {
  for (Node* node : Walk(run.tokens, run.segment.id.variant).path)
    if (node->first >= run.first && !node->stored) node->stored = stored;
  InsertStored(run.tokens, run.first, run.segment.id.variant, std::move(stored));  // dropped meanwhile
}

}  // namespace pd
