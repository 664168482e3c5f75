#include "base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pd {

uint64_t Digest(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t Digest(std::string_view text, uint64_t seed) { return Digest(std::as_bytes(std::span(text)), seed); }

}  // namespace pd
