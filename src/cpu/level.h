// Which instructions the kernels may use.
#pragma once
#include <cstdint>

namespace pd::cpu {

// In ascending order of speed. kAvx2 includes FMA and F16C; kAvx512 includes F, BW, DQ, VL and VNNI; kAmx
// adds AMX's 8-bit tiles.
enum class Level : uint8_t { kScalar, kAvx2, kAvx512, kAmx };
inline constexpr Level kAllLevels[] = {Level::kScalar, Level::kAvx2, Level::kAvx512, Level::kAmx};

const char* Name(Level level);  // "scalar", "avx2", "avx512", "amx"

// The highest level that this build, the processor and its operating system support.
Level BestLevel();

}  // namespace pd::cpu
