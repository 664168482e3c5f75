#include "sample/uniform.h"

namespace pd {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53) * counter[0], b = uint64_t(0xCD9E8D57) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key[1],
               uint32_t(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

double Uniform(uint64_t seed, uint64_t draw) {
  const auto words =
      Philox({uint32_t(draw), uint32_t(draw >> 32), 0, 0}, {uint32_t(seed), uint32_t(seed >> 32)});
  const uint64_t bits = uint64_t(words[1]) << 32 | words[0];
  return double(bits >> 11) * 0x1p-53;
}

}  // namespace pd
