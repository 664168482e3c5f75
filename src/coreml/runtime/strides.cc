#include "coreml/runtime/strides.h"

#include <algorithm>

#include "base/dtype.h"

namespace pd {
namespace {

// In order of stride, each axis must step over the whole extent of the finer ones, and all of it must fit.
bool Possible(const mil::Dims& shape, std::span<const int64_t> strides, size_t elements) {
  if (strides.size() != shape.size()) return false;
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (size_t a = 0; a < shape.size(); ++a)
    if (shape[a] > 1) axes.emplace_back(strides[a], shape[a]);
  std::ranges::sort(axes);
  int64_t extent = 1;
  for (const auto& [stride, size] : axes) {
    if (stride < extent || stride > int64_t(elements) / (size - 1)) return false;
    extent += stride * (size - 1);
  }
  return extent <= int64_t(elements);
}

}  // namespace

std::optional<std::vector<int64_t>> UsableStrides(const mil::Dims& shape, std::span<const int64_t> reported,
                                                  size_t bytes, bool* distrusted) {
  *distrusted = false;
  if (Possible(shape, reported, bytes / sizeof(F16)))
    return std::vector<int64_t>(reported.begin(), reported.end());
  *distrusted = true;
  if (mil::ByteSize({mil::DataType::kF16, shape}) != bytes) return std::nullopt;
  return mil::DenseStrides(shape);
}

}  // namespace pd
