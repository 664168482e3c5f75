// The tables that a build may hold, one for each file of this folder. kernels.h chooses among them.
#pragma once
#include "cpu/kernels/kernels.h"

namespace pd::cpu {

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;    // x86-64 builds only
extern const Kernels kAvx512Kernels;  // x86-64 builds only
Kernels AmxKernels();                 // x86-64 builds only: the AVX-512 table with other products

}  // namespace pd::cpu
