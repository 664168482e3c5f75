#include "cpu/kernels/tables.h"

namespace pd::cpu {
namespace {

// Asks the processor, and through XGETBV whether the operating system saves the registers.
bool Has(Level level) {
  switch (level) {
    case Level::kScalar:
      return true;
    case Level::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Level::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni") && Has(Level::kAvx2);
  }
  return false;
}

}  // namespace

const Kernels* FindKernels(Level level) {
  if (!Has(level)) return nullptr;
  return level == Level::kAvx512 ? &kAvx512Kernels : level == Level::kAvx2 ? &kAvx2Kernels : &kScalarKernels;
}

}  // namespace pd::cpu
