#include "coreml/interpreter/layout.h"

#include <algorithm>

#include "base/error.h"
#include "coreml/mil/given.h"

namespace pd::interp {

Layout LayoutOf(const View& v) {
  const auto part = [&](const auto& all) { return Dims(all.begin(), all.begin() + std::ptrdiff_t(v.rank)); };
  return {part(v.shape), part(v.strides), 0};
}

View ViewOf(const Layout& layout, DataType dtype, std::byte* start) {
  return MakeView(dtype, layout.shape, layout.strides, start + layout.offset * int64_t(ElementBytes(dtype)));
}

Layout Permute(const Layout& x, std::span<const size_t> axes) {
  Layout y{{}, {}, x.offset};
  for (size_t a : axes) {
    y.shape.push_back(x.shape[a]);
    y.strides.push_back(x.strides[a]);
  }
  return y;
}

// Walks both shapes together in groups of axes with equal products; the old axes of a group must be
// contiguous with each other.
std::optional<Layout> Reshape(const Layout& x, const Dims& shape) {
  Layout y{shape, DenseStrides(shape), x.offset};
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return y;
  Layout old{{}, {}, 0};  // without axes of size 1
  for (size_t a = 0; a < x.shape.size(); ++a)
    if (x.shape[a] != 1) old.shape.push_back(x.shape[a]), old.strides.push_back(x.strides[a]);
  for (size_t i = 0, j = 0; i < old.shape.size();) {
    int64_t from = old.shape[i], to = 1;
    size_t last = i, first = j;
    while (from != to) {
      if (to < from) {
        to *= shape[j++];
      } else {
        if (old.strides[last] != old.shape[last + 1] * old.strides[last + 1]) return std::nullopt;
        from *= old.shape[++last];
      }
    }
    int64_t step = old.strides[last];
    for (size_t a = j; a-- > first;) {
      y.strides[a] = step;
      step *= shape[a];
    }
    i = last + 1;
  }
  return y;
}

Layout SliceBySize(const Layout& x, std::span<const int64_t> begin, std::span<const int64_t> count) {
  Layout y = x;
  for (size_t a = 0; a < x.shape.size(); ++a) {
    y.shape[a] = count[a];
    y.offset += begin[a] * x.strides[a];
  }
  return y;
}

Layout SliceByIndex(const Layout& x, const IndexSlice& slice, std::span<const int64_t> begin,
                    std::span<const int64_t> end) {
  const auto flag = [](const Dims& mask, size_t a) { return !mask.empty() && mask[a] != 0; };
  Layout y{{}, {}, x.offset};
  for (size_t a = 0; a < x.shape.size(); ++a) {
    const int64_t size = x.shape[a];
    if (flag(slice.squeeze_mask, a)) {
      const int64_t index = flag(slice.begin_mask, a) ? 0 : begin[a] < 0 ? begin[a] + size : begin[a];
      if (index < 0 || index >= size)
        throw Fail(ErrorKind::kCorruptFile, "index {} on an axis of {}", begin[a], size);
      y.offset += index * x.strides[a];
      continue;
    }
    const int64_t step = slice.stride.empty() ? 1 : slice.stride[a];
    const auto place = [&](int64_t i) {
      const int64_t from_front = i < 0 ? i + size : i;
      return step > 0 ? std::clamp<int64_t>(from_front, 0, size)
                      : std::clamp<int64_t>(from_front, -1, size - 1);
    };
    const int64_t first = flag(slice.begin_mask, a) ? (step > 0 ? 0 : size - 1) : place(begin[a]);
    const int64_t last = flag(slice.end_mask, a) ? (step > 0 ? size : -1) : place(end[a]);
    const int64_t span = step > 0 ? last - first : first - last, by = step > 0 ? step : -step;
    const int64_t count = span <= 0 ? 0 : (span + by - 1) / by;
    if (count > 0) y.offset += first * x.strides[a];
    y.shape.push_back(count);
    y.strides.push_back(step * x.strides[a]);
  }
  return y;
}

}  // namespace pd::interp
