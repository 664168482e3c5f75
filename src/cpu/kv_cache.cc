#include "cpu/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cpu/model.h"

namespace pd::cpu {

KvSlot::KvSlot(const ModelSpec& spec, int capacity, RopeTables tables)
    : spec_(spec),
      capacity_(capacity),
      block_tokens_(std::clamp(capacity, 1, kKeyBlock)),
      tables_(std::move(tables)) {
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = AttentionOf(layer);
    const size_t part = size_t(a.kv_width()) * size_t(block_tokens_);
    layers_.push_back({block_halves_, block_halves_ + part, size_t(a.head_dim)});
    block_halves_ += 2 * part;
  }
  const size_t blocks = size_t(capacity + block_tokens_ - 1) / size_t(block_tokens_);
  const size_t bytes = blocks * block_halves_ * sizeof(uint16_t);
  const bool huge = bytes >= Pages::kHugeBytes;
  pages_ = Pages(bytes, huge ? Pages::Size::kHuge : Pages::Size::kSmall, "KV cache");
}

RopeTable& KvSlot::TableOf(const RopeSpec& spec) const {
  for (const auto& table : tables_)
    if (table->spec() == spec) return *table;
  PD_CHECK(false);  // the backend makes a table for every rope of the model
}

void KvSlot::BeginWrite(int end) {
  for (const auto& table : tables_) table->Fill(end);
}

KvSegment KvSlot::Export(int first, int count) const {
  KvSegment segment{.first = first, .count = count};
  segment.layers.assign(spec_.layers.size(), KvLayerView{.dtype = kCpuMemory.kv});
  auto* to = reinterpret_cast<uint16_t*>(AllocateCompact(segment, spec_));
  const int end = first + count;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const AttentionSpec& a = AttentionOf(spec_.layers[i]);
    for (size_t place : {layers_[i].keys, layers_[i].values})
      for (int h = 0; h < a.kv_heads; ++h)
        for (int t = first, n = 0; t < end; t += n) {
          n = std::min(end, BlockEnd(t)) - t;
          to = std::copy_n(Row(place, int(i), h, t), int64_t(n) * a.head_dim, to);
        }
  }
  return segment;
}

}  // namespace pd::cpu
