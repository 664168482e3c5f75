#include "coreml/interpreter/view.h"

#include <algorithm>

#include "base/error.h"

namespace pd::interp {

int64_t View::count() const {
  int64_t n = 1;
  for (size_t a = 0; a < rank; ++a) n *= shape[a];
  return n;
}

size_t ElementBytes(DataType dtype) {
  const int bits = mil::Bits(dtype);
  PD_CHECK(bits >= 8);
  return size_t(bits) / 8;
}

View MakeView(DataType dtype, std::span<const int64_t> shape, std::span<const int64_t> strides,
              std::byte* data) {
  PD_CHECK(shape.size() <= kMostAxes && strides.size() == shape.size());
  View v;
  v.dtype = dtype, v.rank = shape.size(), v.data = data;
  std::copy(shape.begin(), shape.end(), v.shape.begin());
  std::copy(strides.begin(), strides.end(), v.strides.begin());
  return v;
}

View DenseView(const mil::TensorType& type, std::byte* data) {
  return MakeView(type.dtype, type.shape, DenseStrides(type.shape), data);
}

View BroadcastTo(const View& v, std::span<const int64_t> shape) {
  PD_CHECK(v.rank <= shape.size() && shape.size() <= kMostAxes);
  View wide = v;
  wide.rank = shape.size();
  const size_t missing = shape.size() - v.rank;
  for (size_t a = 0; a < shape.size(); ++a) {
    const bool repeated = a < missing || (v.shape[a - missing] == 1 && shape[a] != 1);
    PD_CHECK(repeated || v.shape[a - missing] == shape[a]);
    wide.shape[a] = shape[a];
    wide.strides[a] = repeated ? 0 : v.strides[a - missing];
  }
  return wide;
}

}  // namespace pd::interp
