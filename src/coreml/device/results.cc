#include "coreml/device/results.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "coreml/mil/prefill.h"

namespace pd {
namespace {

// Throws when a token's value is NaN or infinity: the program computed nothing there, or left the memory
// unwritten.
void CheckNumbers(const HalfTensor& tensor, const std::string& name, int64_t channels, int count) {
  constexpr uint16_t kExponent = 0x7C00;
  const int64_t channel = tensor.strides[1], token = tensor.strides[3];
  for (int64_t c = 0; c < channels; ++c) {
    const F16* row = tensor.data + c * channel;
    uint16_t bad = 0;
    for (int t = 0; t < count; ++t) bad |= uint16_t((row[t * token].bits & kExponent) == kExponent);
    if (bad)
      throw NotFinite(fmt::format("the program returned '{}' with values that are not finite numbers", name));
  }
}

// Checks a result. Treats impossible strides as dense ones (Core ML was seen to report zeros).
HalfTensor Checked(const CallResults& results, const std::string& name, int64_t channels) {
  const auto it = results.tensors.find(name);
  if (it == results.tensors.end() || !it->second.data)
    throw Fail(ErrorKind::kDevice, "the program returned no '{}'", name);
  HalfTensor tensor = it->second;
  const int64_t tokens = results.call.shape.tokens;
  if (tensor.shape != mil::Dims{1, channels, 1, tokens} || tensor.strides.size() != 4)
    throw Fail(ErrorKind::kDevice, "the program returned '{}' in a shape other than (1, {}, 1, {})", name,
               channels, tokens);
  const int64_t channel = tensor.strides[1], token = tensor.strides[3];
  const bool possible =
      channel > 0 && token > 0 && (channel >= token * tokens || token >= channel * channels);
  if (!possible) tensor.strides = mil::DenseStrides(tensor.shape);
  CheckNumbers(tensor, name, channels, results.call.count);
  return tensor;
}

struct LayerResults {
  HalfTensor keys, values;
};

KvLayerView ViewOf(const LayerResults& layer, const AttentionSpec& attn) {
  const int64_t channel = layer.keys.strides[1], token = layer.keys.strides[3];
  return {.k = reinterpret_cast<const std::byte*>(layer.keys.data),
          .v = reinterpret_cast<const std::byte*>(layer.values.data),
          .dtype = DType::kF16,
          .head_stride = attn.head_dim * channel,
          .token_stride = token,
          .dim_stride = channel};
}

void Copy(const HalfTensor& from, int64_t channels, int count, F16* to, int64_t row) {
  const int64_t channel = from.strides[1], token = from.strides[3];
  for (int64_t c = 0; c < channels; ++c)
    for (int t = 0; t < count; ++t) to[c * row + t] = from.data[c * channel + t * token];
}

}  // namespace

KvSegment SegmentOf(const ModelSpec& spec, const KvIdentity& id, KeyForm form,
                    std::vector<CallResults> results) {
  PD_CHECK(!results.empty());
  std::vector<std::vector<LayerResults>> calls;
  bool as_views = results.size() == 1;
  int total = 0;
  for (const CallResults& r : results) {
    std::vector<LayerResults>& layers = calls.emplace_back();
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const int64_t channels = AttentionOf(spec.layers[i]).kv_width();
      layers.push_back(
          {Checked(r, mil::NewKeys(int(i)), channels), Checked(r, mil::NewValues(int(i)), channels)});
      const LayerResults& l = layers.back();
      as_views = as_views && l.keys.strides == l.values.strides && l.keys.owner && l.values.owner;
    }
    total += r.call.count;
  }

  KvSegment segment{.id = id, .key_form = form, .first = results.front().call.first, .count = total};
  if (as_views) {
    for (size_t i = 0; i < spec.layers.size(); ++i)
      segment.layers.push_back(ViewOf(calls.front()[i], AttentionOf(spec.layers[i])));
    segment.owner = std::make_shared<const std::vector<LayerResults>>(std::move(calls.front()));
    return segment;
  }
  const auto all =
      std::make_shared<std::vector<F16>>(MemoryBytes(spec, {.kv = DType::kF16}, total) / sizeof(F16));
  F16* at = all->data();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& attn = AttentionOf(spec.layers[i]);
    const int64_t channels = attn.kv_width();
    F16 *k = at, *v = at + channels * total;
    at += 2 * channels * total;
    int done = 0;
    for (size_t c = 0; c < calls.size(); ++c) {
      const int count = results[c].call.count;
      Copy(calls[c][i].keys, channels, count, k + done, total);
      Copy(calls[c][i].values, channels, count, v + done, total);
      done += count;
    }
    segment.layers.push_back(KvLayerView{.k = reinterpret_cast<const std::byte*>(k),
                                         .v = reinterpret_cast<const std::byte*>(v),
                                         .dtype = DType::kF16,
                                         .head_stride = int64_t(attn.head_dim) * total,
                                         .token_stride = 1,
                                         .dim_stride = total});
  }
  segment.owner = all;
  return segment;
}

}  // namespace pd
