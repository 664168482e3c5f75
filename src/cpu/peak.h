// How fast this processor multiplies matrices when memory is out of the way.
#pragma once
#include "cpu/pool.h"

namespace pd {

// Operations a second of all threads of the pool together: our kernels on data that stays in each core's own
// cache, the best type of weights, the best of several passes. No step of a model can exceed it. Takes about
// 0.2 s.
double MeasureCpuPeak(ThreadPool& pool);

}  // namespace pd
