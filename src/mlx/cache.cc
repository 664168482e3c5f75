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
  nothing.eval();  // an array that is still to be computed belongs to the thread that made it
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

size_t MlxCache::BytesPerToken(const ModelSpec& spec, mx::Dtype type) {
  size_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) bytes += 2 * size_t(layer.attn.kv_width()) * mx::size_of(type);
  return bytes;
}

void MlxCache::Reserve(int tokens) {
  const int want_slots = int(open_.size()), want_tokens = (tokens + kStep - 1) / kStep * kStep;
  if (want_slots <= slots_ && want_tokens <= tokens_) return;
  Resize(want_slots <= slots_ ? slots_ : std::max(want_slots, std::min(2 * slots_, slots_ + 16)),
         std::max(want_tokens, tokens_));
}

void MlxCache::CheckRoom(int slots, int tokens) const {
  const size_t now = size_t(slots_) * size_t(tokens_) * BytesPerToken(spec_, type_);
  const size_t then = size_t(slots) * size_t(tokens) * BytesPerToken(spec_, type_);
  const size_t others = mx::get_active_memory() - std::min(now, mx::get_active_memory());
  if (others + then > mx::get_memory_limit())
    throw Fail(ErrorKind::kOutOfMemory,
               "mlx: keys and values of {} slots of {} tokens take {} MB beside {} MB, the limit is {} MB; "
               "use fewer "
               "sequences or a smaller context",
               slots, tokens, then >> 20, others >> 20, mx::get_memory_limit() >> 20);
}

void MlxCache::Resize(int slots, int tokens) {
  CheckRoom(slots, tokens);
  Wait();
  for (size_t i = 0; i < layers.size(); ++i) {
    const AttentionSpec& a = spec_.layers[i].attn;
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
