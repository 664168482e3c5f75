#include "cpu/level.h"

#include "cpu/kernels/kernels.h"

namespace pd::cpu {

const char* Name(Level level) {
  switch (level) {
    case Level::kScalar:
      return "scalar";
    case Level::kAvx2:
      return "avx2";
    case Level::kAvx512:
      return "avx512";
    case Level::kAmx:
      return "amx";
  }
  return "?";
}

Level BestLevel() {
  Level best = Level::kScalar;
  for (Level level : kAllLevels)
    if (FindKernels(level)) best = level;
  return best;
}

}  // namespace pd::cpu
