// Kernels of our own for GPUs, where MLX's operations would be too many or too slow: see the head of each
// gpu/*.kernel.
#pragma once
#include <memory>

#include "mlx/kernels.h"

namespace pd {

// Our kernels on a GPU, MLX's operations elsewhere. On a GPU steps write to the cache arrays in place, though
// MLX takes those for constants (gpu/place.kernel says what keeps the order).
std::unique_ptr<MlxKernels> MakeKernels();

}  // namespace pd
