#include "kv/segment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/digest.h"
#include "base/error.h"

namespace pd {

uint64_t ComputedBy(std::string_view producer) { return Digest(producer); }

void CheckSegment(const KvSegment& segment, const ModelSpec& spec, const KvIdentity& id) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw Fail(ErrorKind::kBadRequest, "KV segment: {}", what);
  };
  require(segment.id.spec == id.spec && segment.id.weights == id.weights, "it was made by another model");
  require(segment.id.variant.rope == id.variant.rope, "it was made for another RoPE length variant");
  require(segment.id.variant.adapter == id.variant.adapter, "it was made with another adapter");
  require(segment.first >= 0 && segment.count >= 0, "its token range is negative");
  require(segment.layers.size() == spec.layers.size(), "its number of layers differs from the model's");
  for (size_t i = 0; i < segment.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const LayerMemory& memory = segment.layers[i];
    require(std::holds_alternative<KvLayerView>(memory) == (KvEntries(layer) > 0),
            "its layers have keys and values where the model has none, or the reverse");
    if (const auto* state = std::get_if<StateView>(&memory))
      require(state->state.size() == StateEntries(layer) && state->tail.size() == TailEntries(layer),
              "a state's size differs from the layer's");
    const auto* view = std::get_if<KvLayerView>(&memory);
    if (!view) continue;
    const AttentionSpec& a = AttentionOf(layer);
    require(!IsQuantised(view->dtype) && view->dtype != DType::kF64,
            "its keys and values must be f32, f16 or bf16");
    require(segment.count == 0 || (view->k && view->v), "a layer has no memory");
    // In order of stride, each axis must step over the whole extent of the finer ones.
    std::array<std::pair<int64_t, int64_t>, 3> axes = {{{view->head_stride, a.kv_heads},
                                                        {view->token_stride, segment.count},
                                                        {view->dim_stride, a.head_dim}}};
    std::sort(axes.begin(), axes.end());
    int64_t extent = 1;
    for (const auto& [stride, size] : axes) {
      if (size <= 1) continue;
      require(stride >= extent, "its strides overlap");
      extent = stride * (size - 1) + extent;
    }
  }
}

void ReadHead(const KvLayerView& view, const std::byte* base, int head, int t, std::span<float> out) {
  const int64_t at = head * view.head_stride + t * view.token_stride;
  const auto size = int64_t(Info(view.dtype).block_bytes);
  if (view.dim_stride == 1) return DequantizeRow(view.dtype, base + at * size, out);
  for (size_t d = 0; d < out.size(); ++d)
    DequantizeRow(view.dtype, base + (at + int64_t(d) * view.dim_stride) * size, out.subspan(d, 1));
}

KvSegment Slice(const KvSegment& segment, int first, int count) {
  PD_CHECK(first >= segment.first && count >= 0 && first + count <= segment.end());
  KvSegment slice = segment;
  slice.first = first, slice.count = count;
  for (LayerMemory& memory : slice.layers) {
    if (auto* view = std::get_if<KvLayerView>(&memory)) {
      const auto bytes = ptrdiff_t(RowBytes(view->dtype, 1)) * (first - segment.first) * view->token_stride;
      view->k += bytes;
      view->v += bytes;
    } else if (std::holds_alternative<StateView>(memory) && slice.end() != segment.end()) {
      memory = std::monostate();
    }
  }
  return slice;
}

namespace {

// One head's values, token by token.
void CopyHead(const KvLayerView& view, const std::byte* from, int count, int dim, std::byte* to) {
  const auto size = ptrdiff_t(RowBytes(view.dtype, 1));
  if (view.dim_stride == 1 && view.token_stride == dim) {
    std::memcpy(to, from, size_t(size) * size_t(dim) * size_t(count));
    return;
  }
  for (ptrdiff_t t = 0; t < count; ++t)
    for (ptrdiff_t d = 0; d < dim; ++d, to += size)
      std::memcpy(to, from + (t * view.token_stride + d * view.dim_stride) * size, size_t(size));
}

// Bytes of a layer's keys; its values take the same.
size_t KeyBytes(const KvLayerView& view, const AttentionSpec& a, int count) {
  return size_t(count) * RowBytes(view.dtype, a.kv_width());
}

bool SamePlaces(const KvSegment& a, const KvSegment& b) {
  for (size_t i = 0; i < a.layers.size(); ++i) {
    const auto *kv = std::get_if<KvLayerView>(&a.layers[i]), *other = std::get_if<KvLayerView>(&b.layers[i]);
    if (kv && *kv != *other) return false;
    const auto *state = std::get_if<StateView>(&a.layers[i]), *its = std::get_if<StateView>(&b.layers[i]);
    if (state && (state->state.data() != its->state.data() || state->tail.data() != its->tail.data()))
      return false;
  }
  return true;
}

}  // namespace

size_t CompactBytes(const KvSegment& segment, const ModelSpec& spec) {
  size_t bytes = 0;
  for (size_t i = 0; i < segment.layers.size(); ++i) {
    if (const auto* view = std::get_if<KvLayerView>(&segment.layers[i]))
      bytes += 2 * KeyBytes(*view, AttentionOf(spec.layers[i]), segment.count);
    if (const auto* state = std::get_if<StateView>(&segment.layers[i]))
      bytes += state->state.size_bytes() + state->tail.size_bytes();
  }
  return bytes;
}

void PlaceCompact(KvSegment& segment, const ModelSpec& spec, const std::byte* memory) {
  for (size_t i = 0; i < segment.layers.size(); ++i) {
    if (auto* view = std::get_if<KvLayerView>(&segment.layers[i])) {
      const AttentionSpec& a = AttentionOf(spec.layers[i]);
      const size_t half = KeyBytes(*view, a, segment.count);
      *view = {memory, memory + half, view->dtype, int64_t(segment.count) * a.head_dim, a.head_dim, 1};
      memory += 2 * half;
    } else if (auto* state = std::get_if<StateView>(&segment.layers[i])) {
      const auto* floats = reinterpret_cast<const float*>(memory);
      memory += state->state.size_bytes() + state->tail.size_bytes();
      state->state = {floats, state->state.size()};
      state->tail = {floats + state->state.size(), state->tail.size()};
    }
  }
}

std::byte* AllocateCompact(KvSegment& segment, const ModelSpec& spec) {
  constexpr std::align_val_t kAlignment{64};
  const size_t bytes = CompactBytes(segment, spec);
  auto* memory = static_cast<std::byte*>(::operator new(std::max(bytes, size_t(1)), kAlignment));
  segment.owner = std::shared_ptr<const void>(memory, [](void* p) { ::operator delete(p, kAlignment); });
  PlaceCompact(segment, spec, memory);
  return memory;
}

KvSegment Compact(const KvSegment& segment, const ModelSpec& spec) {
  PD_CHECK(segment.layers.size() == spec.layers.size());
  KvSegment compact = segment;
  for (const LayerMemory& memory : segment.layers) {  // already compact from the first layer on?
    if (const auto* view = std::get_if<KvLayerView>(&memory)) {
      PlaceCompact(compact, spec, view->k);
      if (SamePlaces(segment, compact)) return segment;
      break;
    }
    if (std::holds_alternative<StateView>(memory)) break;
  }

  std::byte* memory = AllocateCompact(compact, spec);
  const auto* begin = memory;
  for (size_t i = 0; i < compact.layers.size(); ++i) {
    if (const auto* from = std::get_if<KvLayerView>(&segment.layers[i])) {
      const KvLayerView& to = compact.kv(i);
      const AttentionSpec& a = AttentionOf(spec.layers[i]);
      const auto size = ptrdiff_t(RowBytes(from->dtype, 1));
      for (ptrdiff_t h = 0; h < a.kv_heads; ++h)
        for (const auto& [source, target] : {std::pair(from->k, to.k), std::pair(from->v, to.v)})
          CopyHead(*from, source + h * from->head_stride * size, segment.count, a.head_dim,
                   memory + (target - begin) + h * to.head_stride * size);
    } else if (const auto* state = std::get_if<StateView>(&segment.layers[i])) {
      const auto& to = std::get<StateView>(compact.layers[i]);
      const auto copy = [&](std::span<const float> source, std::span<const float> target) {
        if (!source.empty())
          std::memcpy(memory + (reinterpret_cast<const std::byte*>(target.data()) - begin), source.data(),
                      source.size_bytes());
      };
      copy(state->state, to.state);
      copy(state->tail, to.tail);
    }
  }
  return compact;
}

}  // namespace pd
