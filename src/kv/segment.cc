#include "kv/segment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

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

KvSegment Slice(const KvSegment& segment, int first, int count) {
  KvSegment slice = segment;
  for (KvLayerView& view : slice.layers) {
    const int begin = std::clamp(first, view.first, view.first + view.count);
    const int end = std::clamp(first + count, begin, view.first + view.count);
    const auto bytes = ptrdiff_t(RowBytes(view.dtype, 1)) * (begin - view.first) * view.token_stride;
    view.k += bytes;
    view.v += bytes;
    view.first = begin;
    view.count = end - begin;
  }
  return slice;
}

namespace {

// One head's values, token after token.
void CopyHead(const KvLayerView& view, const std::byte* from, int dim, std::byte* to) {
  const auto size = ptrdiff_t(RowBytes(view.dtype, 1));
  if (view.dim_stride == 1 && view.token_stride == dim) {
    std::memcpy(to, from, size_t(size) * size_t(dim) * size_t(view.count));
    return;
  }
  for (ptrdiff_t t = 0; t < view.count; ++t)
    for (ptrdiff_t d = 0; d < dim; ++d, to += size)
      std::memcpy(to, from + (t * view.token_stride + d * view.dim_stride) * size, size_t(size));
}

}  // namespace

size_t CompactBytes(std::span<const KvLayerView> layers, const ModelSpec& spec) {
  size_t bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i)
    bytes += 2 * size_t(layers[i].count) * RowBytes(layers[i].dtype, spec.layers[i].attn.kv_width());
  return bytes;
}

void PlaceCompact(std::span<KvLayerView> layers, const ModelSpec& spec, const std::byte* memory) {
  for (size_t i = 0; i < layers.size(); ++i) {
    KvLayerView& view = layers[i];
    const AttentionSpec& a = spec.layers[i].attn;
    const size_t half = size_t(view.count) * RowBytes(view.dtype, a.kv_width());
    view.k = memory;
    view.v = memory + half;
    memory += 2 * half;
    view.head_stride = int64_t(view.count) * a.head_dim;
    view.token_stride = a.head_dim;
    view.dim_stride = 1;
  }
}

std::byte* AllocateCompact(KvSegment& segment, const ModelSpec& spec) {
  constexpr std::align_val_t kAlignment{64};
  const size_t bytes = CompactBytes(segment.layers, spec);
  auto* memory = static_cast<std::byte*>(::operator new(std::max(bytes, size_t(1)), kAlignment));
  segment.owner = std::shared_ptr<const void>(memory, [](void* p) { ::operator delete(p, kAlignment); });
  PlaceCompact(segment.layers, spec, memory);
  return memory;
}

KvSegment Compact(const KvSegment& segment, const ModelSpec& spec) {
  PD_CHECK(segment.layers.size() == spec.layers.size());
  KvSegment compact = segment;
  PlaceCompact(compact.layers, spec, segment.layers.front().k);
  if (compact.layers == segment.layers) return segment;

  std::byte* memory = AllocateCompact(compact, spec);
  for (size_t i = 0; i < compact.layers.size(); ++i) {
    const KvLayerView &from = segment.layers[i], &to = compact.layers[i];
    const AttentionSpec& a = spec.layers[i].attn;
    const auto size = ptrdiff_t(RowBytes(from.dtype, 1));
    for (ptrdiff_t h = 0; h < a.kv_heads; ++h)
      for (const auto& [source, target] : {std::pair(from.k, to.k), std::pair(from.v, to.v)})
        CopyHead(from, source + h * from.head_stride * size, a.head_dim,
                 memory + (target - memory) + h * to.head_stride * size);
  }
  return compact;
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
