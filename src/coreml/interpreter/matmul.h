// Batches of matrix products.
#pragma once
#include <memory>

#include "coreml/interpreter/machine.h"
#include "coreml/interpreter/product.h"
#include "coreml/interpreter/view.h"

namespace pd::interp {

// z[..., m, n] = sum over k of x[..., m, k] * y[..., k, n] (+ bias[n]), of fp16 or fp32; all of one rank, x
// and y broadcast to z's batch axes.
struct MatMulJob {
  View x, y, z;
  // x or y packed earlier, if it is constant and has no batch axes: x as the factor [k, m].
  const PackedFactor *packed_x = nullptr, *packed_y = nullptr;
  const float* bias = nullptr;  // padded to tiles; with packed_y only
};
void MatMul(Machine& machine, const MatMulJob& job);

// The same in plain loops, with the same bits. Bias as in the job.
void PlainMatMul(Machine& machine, const MatMulJob& job);
// For integers; sums wrap around.
void PlainIntMatMul(Machine& machine, const MatMulJob& job);

}  // namespace pd::interp
