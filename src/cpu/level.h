// Which instructions the kernels may use.
#pragma once
#include <cstdint>

namespace pd::cpu {

// In ascending order of speed. kAvx2 includes FMA and F16C; kAvx512 includes F, BW, DQ, VL and VNNI.
enum class Level : uint8_t { kScalar, kAvx2, kAvx512 };
inline constexpr Level kAllLevels[] = {Level::kScalar, Level::kAvx2, Level::kAvx512};

const char* Name(Level level);  // "scalar", "avx2", "avx512"

// The highest that this build, this processor and its operating system have.
Level BestLevel();

}  // namespace pd::cpu
