// Conversions between MLX's arrays and this project's types. Included only inside this folder and its tests.
#pragma once
#include <mlx/mlx.h>

#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace pd {

namespace mx = mlx::core;

mx::Dtype ToMlx(DType type);    // kF32, kF16, kBF16
DType FromMlx(mx::Dtype type);  // float32, float16, bfloat16

// [n], copied from the host.
mx::array Vector(std::span<const int32_t> values);

// Columns [from, to) of a matrix [N, C], without a copy.
mx::array Columns(const mx::array& matrix, int from, int to);

// Copies of the values, row-major; waits until they are computed.
std::vector<float> ReadFloats(const mx::array& a);
std::vector<int32_t> ReadInts(const mx::array& a);

// Throws the error of failed work that has ended on this thread's stream. Waiting for an array does not
// report it if the work had ended before: MLX then checks nothing. (Only the cpu backend can be asked; on a
// GPU a failure also surfaces at the next call.)
void CheckStream();

// Converts an exception of MLX to an Error: kOutOfMemory or kDevice.
Error MlxFailure(const std::exception& e);

// call(), with MLX's exceptions converted to Error.
template <class F>
auto WithMlxErrors(F call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw MlxFailure(e);
  }
}

}  // namespace pd
