// Tensors at run time: memory with a shape and strides.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "coreml/mil/program.h"

namespace pd::interp {

using mil::DataType;
using mil::DenseStrides;
using mil::Dims;

inline constexpr size_t kMostAxes = 5;  // of a tensor at run time

// Element (i, j, ...) lies i * strides[0] + j * strides[1] + ... elements after data. Does not own memory. A
// program binds every name once, so several views of the same memory are safe.
struct View {
  DataType dtype = DataType::kF16;
  size_t rank = 0;
  std::array<int64_t, kMostAxes> shape{}, strides{};
  std::byte* data = nullptr;

  int64_t count() const;  // elements
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  void AddAxis(int64_t size, int64_t stride) { shape[rank] = size, strides[rank++] = stride; }
};

size_t ElementBytes(DataType dtype);  // PD_CHECKs that an element is whole bytes

View MakeView(DataType dtype, std::span<const int64_t> shape, std::span<const int64_t> strides,
              std::byte* data);
View DenseView(const mil::TensorType& type, std::byte* data);
// numpy's broadcasting to `shape`: repeated axes get stride 0.
View BroadcastTo(const View& v, std::span<const int64_t> shape);

}  // namespace pd::interp
