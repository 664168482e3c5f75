// For processors with plain loops only. A vector file for one of them comes with its own select file.
#include "cpu/kernels/tables.h"

namespace pd::cpu {

const Kernels* FindKernels(Level level) { return level == Level::kScalar ? &kScalarKernels : nullptr; }

}  // namespace pd::cpu
