#include "base/digest.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pd {

uint64_t Digest(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t Digest(std::string_view text, uint64_t seed) { return Digest(std::as_bytes(std::span(text)), seed); }

uint64_t FileDigest(const std::filesystem::path& path, uint64_t seed) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> part(size_t(1) << 20);
  XXH3_state_t state;
  XXH3_64bits_reset_withSeed(&state, seed);
  while (in) {
    in.read(part.data(), std::streamsize(part.size()));
    XXH3_64bits_update(&state, part.data(), size_t(in.gcount()));
  }
  if (!in.eof()) throw Fail(ErrorKind::kNotFound, "{}: {}", path.string(), std::strerror(errno));
  return XXH3_64bits_digest(&state);
}

}  // namespace pd
