// Reshapes and slices a tensor without moving its elements.
#pragma once
#include <optional>
#include <span>

#include "coreml/interpreter/view.h"

namespace pd::interp {

// Element (i, j, ...) lies offset + i * strides[0] + j * strides[1] + ... elements after a tensor's start.
struct Layout {
  Dims shape, strides;
  int64_t offset = 0;
};
Layout LayoutOf(const View& v);
View ViewOf(const Layout& layout, DataType dtype, std::byte* start);

Layout Permute(const Layout& x, std::span<const size_t> axes);
// nullopt when the new axes have no fixed strides, so that elements would have to move.
std::optional<Layout> Reshape(const Layout& x, const Dims& shape);

// `count[a]` elements of each axis from `begin[a]`.
Layout SliceBySize(const Layout& x, std::span<const int64_t> begin, std::span<const int64_t> count);

// The parameters of slice_by_index and slice_update that are constants; empty: not given.
struct IndexSlice {
  Dims stride, begin_mask, end_mask, squeeze_mask;
};
// numpy's rules. Throws kCorruptFile for an index on a squeezed axis that is out of range.
Layout SliceByIndex(const Layout& x, const IndexSlice& slice, std::span<const int64_t> begin,
                    std::span<const int64_t> end);

}  // namespace pd::interp
