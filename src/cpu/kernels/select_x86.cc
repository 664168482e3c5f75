#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "cpu/kernels/tables.h"

namespace pd::cpu {
namespace {

// Linux gives a process the state of tile registers only on request.
bool MayUseTiles() {
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Asks the processor for its features, and through XGETBV whether the operating system saves the registers.
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
    case Level::kAmx:
      return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
             Has(Level::kAvx512) && MayUseTiles();
  }
  return false;
}

}  // namespace

const Kernels* FindKernels(Level level) {
  if (!Has(level)) return nullptr;
  static const Kernels amx = AmxKernels();
  switch (level) {
    case Level::kScalar:
      return &kScalarKernels;
    case Level::kAvx2:
      return &kAvx2Kernels;
    case Level::kAvx512:
      return &kAvx512Kernels;
    case Level::kAmx:
      return &amx;
  }
  return nullptr;
}

}  // namespace pd::cpu
