// Import and Export of MlxBackend: segments in host memory to and from the cache arrays.
#include "mlx/handoff.h"

#include <cstring>

#include "base/error.h"
#include "mlx/mlx_backend.h"

namespace pd {
namespace {

constexpr size_t kUploadBytes = size_t(256)
                                << 20;  // of a copy, unless one layer has more: an array must be below 2 GB

// The values [1, K, count, D] of one layer: as a view if they are dense, else packed first.
mx::array Wrap(const KvLayerView& view, const std::byte* base, int count, const AttentionSpec& a,
               const std::shared_ptr<const void>& owner) {
  const mx::Shape shape{1, a.kv_heads, count, a.head_dim};
  const mx::Strides strides{0, a.kv_heads > 1 ? view.head_stride : 0, count > 1 ? view.token_stride : 0,
                            a.head_dim > 1 ? view.dim_stride : 0};
  int64_t extent = 1, values = 1;
  for (int axis = 1; axis < 4; ++axis) {
    extent += strides[size_t(axis)] * (shape[axis] - 1);
    values *= shape[axis];
  }
  if (extent <= 2 * values) {
    const mx::array all(const_cast<std::byte*>(base), {int(extent)}, ToMlx(view.dtype), [owner](void*) {});
    return mx::as_strided(all, shape, strides, 0);
  }
  std::vector<float> packed(static_cast<size_t>(values));
  auto out = std::span(packed);
  for (int h = 0; h < a.kv_heads; ++h)
    for (int t = 0; t < count; ++t, out = out.subspan(size_t(a.head_dim)))
      ReadHead(view, base, h, t, out.first(size_t(a.head_dim)));
  return mx::array(packed.begin(), shape, mx::float32);
}

// The values [K, count, D] of one layer, packed, in their own type.
void Pack(const KvLayerView& view, const std::byte* base, int count, const AttentionSpec& a, std::byte* to) {
  const size_t item = RowBytes(view.dtype, 1), head = size_t(a.head_dim) * item;
  for (int h = 0; h < a.kv_heads; ++h) {
    const std::byte* row = base + h * view.head_stride * int64_t(item);
    if (view.dim_stride == 1 && view.token_stride == a.head_dim) {
      std::memcpy(to, row, size_t(count) * head);
      to += size_t(count) * head;
      continue;
    }
    for (int t = 0; t < count; ++t, row += view.token_stride * int64_t(item), to += head) {
      if (view.dim_stride == 1) {
        std::memcpy(to, row, head);
      } else {
        for (int d = 0; d < a.head_dim; ++d)
          std::memcpy(to + size_t(d) * item, row + d * view.dim_stride * int64_t(item), item);
      }
    }
  }
}

}  // namespace

std::vector<MlxSegmentLayer> WrapSegment(const ModelSpec& spec, const KvSegment& segment) {
  std::vector<MlxSegmentLayer> layers;
  for (size_t i = 0; i < segment.layers.size(); ++i) {
    const KvLayerView& view = segment.kv(i);
    const AttentionSpec& a = AttentionOf(spec.layers[i]);
    layers.push_back({Wrap(view, view.k, segment.count, a, segment.owner),
                      Wrap(view, view.v, segment.count, a, segment.owner)});
  }
  return layers;
}

std::vector<MlxSegmentLayer> UploadSegment(const ModelSpec& spec, const KvSegment& segment) {
  const auto bytes_of = [&](size_t i) {  // of keys or values
    const KvLayerView& view = segment.kv(i);
    return size_t(segment.count) * size_t(AttentionOf(spec.layers[i]).kv_width()) * RowBytes(view.dtype, 1);
  };
  std::vector<MlxSegmentLayer> layers;
  for (size_t from = 0, to; from < segment.layers.size(); from = to) {
    size_t bytes = 0;
    for (to = from; to < segment.layers.size() && (to == from || bytes + 2 * bytes_of(to) <= kUploadBytes);
         ++to)
      bytes += 2 * bytes_of(to);
    const auto packed = std::make_shared<std::vector<std::byte>>(bytes);
    std::byte* out = packed->data();
    for (size_t i = from; i < to; ++i) {
      for (const std::byte* base : {segment.kv(i).k, segment.kv(i).v}) {
        Pack(segment.kv(i), base, segment.count, AttentionOf(spec.layers[i]), out);
        out += bytes_of(i);
      }
    }
    const mx::array all(packed->data(), {int(bytes)}, mx::uint8, [packed](void*) {});
    size_t at = 0;
    const auto next = [&](size_t i) {
      const mx::array part = mx::slice(all, {int(at)}, {int(at + bytes_of(i))});
      at += bytes_of(i);
      const AttentionSpec& a = AttentionOf(spec.layers[i]);
      return mx::reshape(mx::view(part, ToMlx(segment.kv(i).dtype)),
                         {1, a.kv_heads, segment.count, a.head_dim});
    };
    for (size_t i = from; i < to; ++i) {
      mx::array k = next(i);
      layers.push_back({std::move(k), next(i)});
    }
  }
  return layers;
}

void MlxBackend::ImportRows(SlotId slot, const KvSegment& segment) {
  const Slot& s = Usable(slot);
  const int first = segment.first, count = segment.count, end = first + count;
  if (count == 0) return;
  OnDevice(std::span(&slot, 1), [&] {
    cache_.Reserve(end);
    cache_.Wait();
    const auto layers =
        mx::metal::is_available() ? WrapSegment(Spec(), segment) : UploadSegment(Spec(), segment);
    std::vector<mx::array> updated;
    for (size_t i = 0; i < segment.layers.size(); ++i) {
      const AttentionSpec& a = AttentionOf(Spec().layers[i]);
      mx::array k = layers[i].k;
      if (segment.key_form == KeyForm::kRaw && a.rope) {
        const mx::array by_token = mx::swapaxes(mx::squeeze(k, 0), 0, 1);  // [count, K, D]
        const mx::array turned = Turn(by_token, tables_.Range(*a.rope, s.variant.rope, first, end));
        k = mx::expand_dims(mx::swapaxes(turned, 0, 1), 0);
      }
      const auto store = [&](mx::array& into, const mx::array& rows) {
        into = mx::slice_update(into, mx::astype(rows, activations_), mx::Shape{slot, 0, first, 0},
                                mx::Shape{slot + 1, a.kv_heads, end, a.head_dim});
      };
      MlxLayerCache& layer = cache_.layers[i];
      store(layer.k, k);
      store(layer.v, layers[i].v);
      updated.push_back(layer.k), updated.push_back(layer.v);
    }
    mx::eval(updated);
    CheckStream();
  });
}

KvSegment MlxBackend::ExportRows(SlotId slot, int first, int count) {
  Usable(slot);
  KvSegment segment{.first = first, .count = count};
  auto memory = std::make_shared<std::vector<mx::array>>();  // for each layer [2, K, count, D]
  OnDevice(std::span(&slot, 1), [&] {
    cache_.Wait();
    for (size_t i = 0; count > 0 && i < cache_.layers.size(); ++i) {
      const AttentionSpec& a = AttentionOf(Spec().layers[i]);
      const auto rows = [&](const mx::array& all) {
        return mx::slice(all, {slot, 0, first, 0}, {slot + 1, a.kv_heads, first + count, a.head_dim});
      };
      // Joining two arrays makes a third, so the published memory is not shared with the cache.
      memory->push_back(mx::concatenate({rows(cache_.layers[i].k), rows(cache_.layers[i].v)}, 0));
    }
    mx::eval(*memory);
    CheckStream();
  });
  for (size_t i = 0; i < cache_.layers.size(); ++i) {
    const AttentionSpec& a = AttentionOf(Spec().layers[i]);
    KvLayerView view{nullptr, nullptr, FromMlx(activations_), int64_t(count) * a.head_dim, a.head_dim, 1};
    if (count > 0) {
      view.k = reinterpret_cast<const std::byte*>((*memory)[i].data<uint8_t>());
      view.v = view.k + (*memory)[i].nbytes() / 2;
    }
    segment.layers.push_back(view);
  }
  segment.owner = memory;
  return segment;
}

}  // namespace pd
