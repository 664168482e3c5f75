// Random numbers without state: a number is a function of seed and counter, the same on every device.
#pragma once
#include <array>
#include <cstdint>

namespace pd {

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), a multiple of 2^-53: the first 64 bits of Philox at counter `draw` with key `seed`, low
// words first, without the lowest 11 bits.
double Uniform(uint64_t seed, uint64_t draw);

}  // namespace pd
