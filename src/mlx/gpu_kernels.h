// Custom kernels for GPUs, where MLX's operations would be too many or too slow: see the head of each
// gpu/*.kernel.
#pragma once
#include <memory>

#include "mlx/kernels.h"

namespace pd {

// Custom kernels on a GPU, MLX's operations elsewhere. On a GPU steps write to the cache arrays in place,
// though MLX treats those as constants (gpu/place.kernel explains how order is kept).
std::unique_ptr<MlxKernels> MakeKernels();

}  // namespace pd
