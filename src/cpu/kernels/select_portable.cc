// Processors for which only the plain loops exist. A vector file for one of them brings its own select file.
#include "cpu/kernels/tables.h"

namespace pd::cpu {

const Kernels* FindKernels(Level level) { return level == Level::kScalar ? &kScalarKernels : nullptr; }

}  // namespace pd::cpu
