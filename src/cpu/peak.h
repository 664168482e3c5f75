// Peak speed of matrix products on this processor, with all data in cache.
#pragma once
#include "cpu/pool.h"

namespace pd {

// Operations per second of all threads of the pool together: our kernels on data in each core's own cache,
// with the fastest weight type, best of several passes. No step of a model can exceed it. Takes about 0.2 s.
double MeasureCpuPeak(ThreadPool& pool);

}  // namespace pd
