#include "kv/segment.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace pd {

size_t KvSegment::bytes(const ModelSpec& spec) const {
  size_t total = 0;
  for (size_t i = 0; i < layers.size(); ++i)
    total += 2 * size_t(layers[i].count) * RowBytes(layers[i].dtype, spec.layers[i].attn.kv_width());
  return total;
}

void CheckSegment(const KvSegment& segment, const ModelSpec& spec, const KvIdentity& id) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw Fail(ErrorKind::kBadRequest, "KV segment: {}", what);
  };
  require(segment.id.spec == id.spec && segment.id.weights == id.weights, "made by another model");
  require(segment.id.rope == id.rope, "made for another RoPE length variant");
  require(segment.layers.size() == spec.layers.size(), "has another number of layers than the model");
  for (size_t i = 0; i < segment.layers.size(); ++i) {
    const KvLayerView& view = segment.layers[i];
    const AttentionSpec& a = spec.layers[i].attn;
    require(view.first == segment.first() && view.count == segment.count(), "layers cover different tokens");
    require(view.first >= 0 && view.count >= 0, "negative token range");
    require(!IsQuantised(view.dtype) && view.dtype != DType::kF64,
            "keys and values must be f32, f16 or bf16");
    require(view.count == 0 || (view.k && view.v), "no memory behind a layer");
    // Sorted by stride, each axis must step over the whole extent of the finer ones.
    std::array<std::pair<int64_t, int64_t>, 3> axes = {
        {{view.head_stride, a.kv_heads}, {view.token_stride, view.count}, {view.dim_stride, a.head_dim}}};
    std::sort(axes.begin(), axes.end());
    int64_t extent = 1;
    for (const auto& [stride, size] : axes) {
      if (size <= 1) continue;
      require(stride >= extent, "strides that overlap");
      extent = stride * (size - 1) + extent;
    }
  }
}

void ReadHead(const KvLayerView& view, const std::byte* base, int head, int token, std::span<float> out) {
  PD_CHECK(token >= view.first && token < view.first + view.count);
  const int64_t at = head * view.head_stride + (token - view.first) * view.token_stride;
  const auto size = int64_t(Info(view.dtype).block_bytes);
  if (view.dim_stride == 1) return DequantizeRow(view.dtype, base + at * size, out);
  for (size_t d = 0; d < out.size(); ++d)
    DequantizeRow(view.dtype, base + (at + int64_t(d) * view.dim_stride) * size, out.subspan(d, 1));
}

KvSegment ViewPacked(const ModelSpec& spec, const KvIdentity& id, KeyForm key_form, const std::byte* k,
                     const std::byte* v, DType dtype, int first, int count,
                     std::shared_ptr<const void> owner) {
  KvSegment segment{id, key_form, {}, std::move(owner)};
  const AttentionSpec& a = spec.layers.front().attn;
  const size_t layer_bytes = size_t(count) * RowBytes(dtype, a.kv_width());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& b = spec.layers[i].attn;
    if (b.kv_heads != a.kv_heads || b.head_dim != a.head_dim)
      throw Fail(ErrorKind::kBadRequest,
                 "packed KV: layer {} has other heads than layer 0, so it cannot be packed", i);
    segment.layers.push_back(
        {first, count, k + i * layer_bytes, v + i * layer_bytes, dtype, a.head_dim, a.kv_width(), 1});
  }
  return segment;
}

}  // namespace pd
