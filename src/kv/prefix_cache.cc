#include "kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pd {
namespace {

// Every layer complete: tokens that a windowed layer lacks come as zeros, for no text that continues here can
// see them.
KvSegment WithZeros(const KvSegment& segment, const ModelSpec& spec, int first, int count) {
  KvSegment whole = segment;
  for (KvLayerView& view : whole.layers) view.first = first, view.count = count;
  const size_t bytes = CompactBytes(whole.layers, spec);
  auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  PlaceCompact(whole.layers, spec, memory->data());
  for (size_t i = 0; i < whole.layers.size(); ++i) {
    const KvLayerView &from = segment.layers[i], &to = whole.layers[i];
    const AttentionSpec& a = spec.layers[i].attn;
    const size_t row = RowBytes(from.dtype, a.head_dim), size = RowBytes(from.dtype, 1);
    for (int h = 0; h < a.kv_heads; ++h)
      for (int t = from.first; t < from.first + from.count; ++t)
        for (const auto& [source, target] : {std::pair(from.k, to.k), std::pair(from.v, to.v)})
          std::copy_n(source + (h * from.head_stride + (t - from.first) * from.token_stride) * int64_t(size),
                      row,
                      memory->data() + (target - memory->data()) +
                          (h * to.head_stride + (t - first) * to.token_stride) * int64_t(size));
  }
  whole.owner = std::move(memory);
  return whole;
}

}  // namespace

// ---- finding ----

PrefixCache::Match PrefixCache::Walk(std::span<const TokenId> tokens, RopeVariant rope) {
  Match match;
  Node* node = &Root(rope);
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

// The last token before `end` that no run of the path has of this layer; -1: none is missing.
int PrefixCache::LastGap(const Match& match, size_t layer, int end) const {
  for (auto node = match.path.rbegin(); node != match.path.rend(); ++node) {
    if ((*node)->first >= end) continue;
    const int last = std::min((*node)->end(), end);
    if (!(*node)->segment) return last - 1;
    const KvLayerView& view = (*node)->segment->layers[layer];
    if (view.first + view.count < last) return last - 1;
    if (view.first > (*node)->first) return std::min(view.first, last) - 1;
  }
  return -1;
}

// The most tokens of the match at which a text can continue.
int PrefixCache::Usable(const Match& match) const {
  int end = match.tokens;
  for (bool moved = true; moved && end > 0;) {
    moved = false;
    for (size_t layer = 0; layer < spec_.layers.size() && end > 0; ++layer) {
      const auto& window = spec_.layers[layer].attn.window;
      const int seen_from = window ? std::max(0, end - *window + 1) : 0;
      const int gap = LastGap(match, layer, end);
      if (gap < seen_from) continue;
      end = gap;
      moved = true;
    }
  }
  return end;
}

PrefixCache::Hit PrefixCache::Find(std::span<const TokenId> tokens, RopeVariant rope) {
  const Match match = Walk(tokens, rope);
  Hit hit{Usable(match), {}};
  ++clock_;
  for (Node* node : match.path) {
    if (node->first >= hit.tokens) break;
    node->used = clock_;
    const int count = std::min(node->end(), hit.tokens) - node->first;
    KvSegment segment = Slice(*node->segment, node->first, count);
    const bool whole =
        std::ranges::all_of(segment.layers, [&](const KvLayerView& view) { return view.count == count; });
    hit.segments.push_back(whole ? std::move(segment) : WithZeros(segment, spec_, node->first, count));
  }
  return hit;
}

// ---- keeping ----

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
    SetSegment(*tail, Slice(whole, token, node.end() - token), 0);  // its memory is counted already
    node.segment = Slice(whole, node.first, token - node.first);
  }
  node.tokens.erase(cut, node.tokens.end());
  node.children.clear();
  node.children[tail->tokens.front()] = std::move(tail);
}

// A new node for the part of `tokens` that is not known; nullptr when all is, or when tokens before `first`
// are not.
PrefixCache::Node* PrefixCache::Attach(std::span<const TokenId> tokens, int first, RopeVariant rope) {
  const Match match = Walk(tokens, rope);
  if (match.tokens < first || match.tokens == int(tokens.size())) return nullptr;
  Node* parent = match.path.empty() ? &Root(rope) : match.path.back();
  if (match.tokens < parent->end()) SplitAt(*parent, match.tokens);
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->first = match.tokens;
  node->tokens.assign(tokens.begin() + match.tokens, tokens.end());
  node->used = ++clock_;
  return (parent->children[node->tokens.front()] = std::move(node)).get();
}

void PrefixCache::Insert(std::span<const TokenId> tokens, int first, const KvSegment& segment) {
  if (CompactBytes(segment.layers, spec_) > limit_) return;
  Node* node = Attach(tokens, first, segment.id.rope);
  if (!node) return;
  KvSegment kept = segment;
  if (node->first > first)  // its beginning is known: that memory is not worth keeping
    kept = Compact(Slice(segment, node->first, node->end() - node->first), spec_);
  SetSegment(*node, kept, CompactBytes(kept.layers, spec_));
  if (stores_) new_.push_back({{tokens.begin(), tokens.end()}, node->first, std::move(kept)});
  Shrink();
}

// `block_bytes`: of all the memory that the segment's owner holds.
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

// The least recently used node whose segment can go: one that is on disk too, or that no other in memory
// continues. Returns whether the node or one below it is in memory.
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

// ---- the disk below ----

void PrefixCache::InsertStored(std::span<const TokenId> tokens, int first, RopeVariant rope,
                               std::shared_ptr<const StoredRun> stored) {
  if (Node* node = Attach(tokens, first, rope)) node->stored = std::move(stored);
}

std::vector<std::shared_ptr<const StoredRun>> PrefixCache::Unloaded(std::span<const TokenId> tokens,
                                                                    RopeVariant rope) {
  std::vector<std::shared_ptr<const StoredRun>> runs;
  for (const Node* node : Walk(tokens, rope).path)
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
    SetSegment(*node, Slice(*segment, node->first, node->end() - node->first),
               CompactBytes(segment->layers, spec_));
    node->used = ++clock_;
  }
  Shrink();
}

std::vector<PrefixCache::New> PrefixCache::TakeNew() { return std::exchange(new_, {}); }

void PrefixCache::Stored(const New& run, std::shared_ptr<const StoredRun> stored) {
  for (Node* node : Walk(run.tokens, run.segment.id.rope).path)
    if (node->first >= run.first && !node->stored) node->stored = stored;
  InsertStored(run.tokens, run.first, run.segment.id.rope, std::move(stored));  // dropped meanwhile
}

}  // namespace pd
