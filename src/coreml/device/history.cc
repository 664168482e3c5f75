#include "coreml/device/history.h"

#include <algorithm>

#include "base/error.h"
#include "coreml/mil/prefill.h"

namespace pd {

History::History(const ModelSpec& spec, const RopeVariant& variant, int capacity)
    : spec_(spec), capacity_(capacity) {
  for (const LayerSpec& s : spec.layers) {
    Layer layer;
    const AttentionSpec& a = AttentionOf(s);
    layer.width = mil::PastWidth(a, capacity);
    layer.keys.resize(size_t(layer.width) * size_t(a.kv_width()));
    layer.values.resize(layer.keys.size());
    if (a.rope) layer.rope = Frequencies(*a.rope, variant);
    layers_.push_back(std::move(layer));
  }
}

void History::Append(const KvSegment& segment) {
  PD_CHECK(segment.first == count_ && segment.layers.size() == layers_.size());
  const int kept = std::min(segment.count, std::max(0, capacity_ - count_));
  for (size_t i = 0; i < layers_.size(); ++i)
    AppendLayer(layers_[i], AttentionOf(spec_.layers[i]), segment, i, kept);
  count_ += segment.count;
}

void History::AppendLayer(Layer& layer, const AttentionSpec& attn, const KvSegment& segment, size_t index,
                          int kept) {
  const KvLayerView& view = segment.kv(index);
  const bool raw = segment.key_form == KeyForm::kRaw;
  const int width = layer.width, end = count_ + kept;
  if (width == 0) return;
  const int base = std::max(0, end - width);
  const auto channels = size_t(attn.kv_width());
  if (const int shift = base - layer.base; shift > 0) {  // older tokens move out of a window
    for (auto* all : {&layer.keys, &layer.values})
      for (size_t c = 0; c < channels; ++c) {
        const auto row = all->begin() + std::ptrdiff_t(c) * width;
        std::copy(row + std::min(shift, width), row + width, row);
      }
    layer.base = base;
  }
  const auto d = size_t(attn.head_dim);
  std::vector<float> head(d);
  for (int token = std::max(count_, base); token < end; ++token)
    for (int h = 0; h < attn.kv_heads; ++h) {
      const auto store = [&](std::vector<F16>& all) {
        for (size_t i = 0; i < d; ++i)
          all[(size_t(h) * d + i) * size_t(width) + size_t(token - layer.base)] = ToF16(head[i]);
      };
      ReadHead(view, view.k, h, token - segment.first, head);
      if (raw) RotateHead(std::span(head), layer.rope, token);
      store(layer.keys);
      ReadHead(view, view.v, h, token - segment.first, head);
      store(layer.values);
    }
}

HalfTensor History::Keys(int layer, int history) const {
  return View(layer, layers_[size_t(layer)].keys, history);
}
HalfTensor History::Values(int layer, int history) const {
  return View(layer, layers_[size_t(layer)].values, history);
}

HalfTensor History::View(int layer, const std::vector<F16>& values, int history) const {
  PD_CHECK(count_ <= history && history <= capacity_);
  const AttentionSpec& attn = AttentionOf(spec_.layers[size_t(layer)]);
  const int64_t channels = attn.kv_width(), row = layers_[size_t(layer)].width;
  return {{1, channels, 1, mil::PastWidth(attn, history)}, {channels * row, row, row, 1}, values.data(), {}};
}

}  // namespace pd
