#include "mlx/arrays.h"

#include <mlx/scheduler.h>

#include <algorithm>
#include <string>

namespace pd {

mx::Dtype ToMlx(DType type) {
  switch (type) {
    case DType::kF32:
      return mx::float32;
    case DType::kF16:
      return mx::float16;
    case DType::kBF16:
      return mx::bfloat16;
    default:
      PD_CHECK(!"a plain 16- or 32-bit type");
  }
}

DType FromMlx(mx::Dtype type) {
  if (type == mx::float32) return DType::kF32;
  if (type == mx::float16) return DType::kF16;
  PD_CHECK(type == mx::bfloat16);
  return DType::kBF16;
}

mx::array Vector(std::span<const int32_t> values) {
  return mx::array(values.begin(), mx::Shape{int(values.size())}, mx::int32);
}

mx::array Columns(const mx::array& matrix, int from, int to) {
  if (from == 0 && to == matrix.shape(1)) return matrix;
  return mx::slice(matrix, {0, from}, {matrix.shape(0), to});
}

namespace {

// Reading an array may move it to host-readable memory. That must not happen to an array that the device
// still uses, so this always reads a copy.
template <class T>
std::vector<T> Read(const mx::array& a, mx::Dtype type, const mx::array& zero) {
  mx::array copy = mx::contiguous(mx::astype(a, type) + zero);
  copy.eval();
  CheckStream();
  return {copy.data<T>(), copy.data<T>() + copy.size()};
}

}  // namespace

std::vector<float> ReadFloats(const mx::array& a) { return Read<float>(a, mx::float32, mx::array(0.f)); }
std::vector<int32_t> ReadInts(const mx::array& a) { return Read<int32_t>(a, mx::int32, mx::array(0)); }

void CheckStream() {
  if (mx::default_device() != mx::Device::cpu) return;
  mx::scheduler::scheduler().check_error(mx::default_stream(mx::Device::cpu));
}

Error MlxFailure(const std::exception& e) {
  std::string message = e.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  const bool memory =
      message.find("allocate") != std::string::npos || message.find("memory") != std::string::npos;
  return Fail(memory ? ErrorKind::kOutOfMemory : ErrorKind::kDevice, "mlx: {}", message);
}

}  // namespace pd
