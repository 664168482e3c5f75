#include "mlx/cache.h"

#include <algorithm>

#include "base/error.h"

namespace pd {

MlxCache::MlxCache(const ModelSpec& spec, mx::Dtype type) : spec_(spec), type_(type) { Reset(); }

SlotId MlxCache::Open() {
  const auto slot = std::find(open_.begin(), open_.end(), false) - open_.begin();
  if (size_t(slot) == open_.size()) open_.push_back(false);
  open_[size_t(slot)] = true;
  ++used_;
  return SlotId(slot);
}

void MlxCache::Close(SlotId slot) {
  open_[size_t(slot)] = false;
  if (--used_ > 0) return;
  open_.clear();
  Reset();
}

void MlxCache::Reset() {
  mx::array nothing = mx::zeros({0}, type_);
  nothing.eval();  // an array that is not computed yet belongs to the thread that made it
  layers.assign(spec_.layers.size(), {nothing, nothing});
  slots_ = tokens_ = 0;
}

void MlxCache::Wait() const {
  std::vector<mx::array> all;
  for (const MlxLayerCache& layer : layers) all.push_back(layer.k), all.push_back(layer.v);
  mx::eval(all);
  mx::synchronize();
  CheckStream();
}

MemoryFormat MlxCache::Format(mx::Dtype type) { return {.kv = FromMlx(type)}; }

void MlxCache::Reserve(int tokens) {
  const int want_slots = int(open_.size()), want_tokens = (tokens + kStep - 1) / kStep * kStep;
  if (want_slots <= slots_ && want_tokens <= tokens_) return;
  const int longer = std::max(want_tokens, tokens_);
  if (want_slots <= slots_) return Resize(slots_, longer);
  const int more = std::max(want_slots, std::min(2 * slots_, slots_ + 16));
  Resize(HasRoom(more, longer) ? more : want_slots, longer);
}

size_t MlxCache::Bytes(int slots, int tokens) const {
  return size_t(slots) * MemoryBytes(spec_, Format(type_), tokens);
}

// The memory that MLX holds besides this cache.
size_t MlxCache::Others() const {
  const size_t all = mx::get_active_memory();
  return all - std::min(Bytes(slots_, tokens_), all);
}

bool MlxCache::HasRoom(int slots, int tokens) const {
  return Others() + Bytes(slots, tokens) <= mx::get_memory_limit();
}

void MlxCache::CheckRoom(int slots, int tokens) const {
  if (!HasRoom(slots, tokens))
    throw Fail(
        ErrorKind::kOutOfMemory,
        "mlx: keys and values of {} slots of {} tokens take {} MB on top of {} MB, the limit is {} MB; "
        "use fewer sequences or a smaller context",
        slots, tokens, Bytes(slots, tokens) >> 20, Others() >> 20, mx::get_memory_limit() >> 20);
}

void MlxCache::Resize(int slots, int tokens) {
  CheckRoom(slots, tokens);
  Wait();
  for (size_t i = 0; i < layers.size(); ++i) {
    const AttentionSpec& a = AttentionOf(spec_.layers[i]);
    for (mx::array* old : {&layers[i].k, &layers[i].v}) {
      mx::array larger = mx::zeros({slots, a.kv_heads, tokens, a.head_dim}, type_);
      if (slots_ > 0) larger = mx::slice_update(larger, *old, mx::Shape{0, 0, 0, 0}, old->shape());
      larger.eval();  // one array at a time: the old one is freed before the next is made
      *old = larger;
    }
  }
  slots_ = slots, tokens_ = tokens;
}

}  // namespace pd
