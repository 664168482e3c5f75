// 64-bit digests that tell weights or files apart. Not a defence against a deliberate collision.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace pd {

uint64_t Digest(std::span<const std::byte> bytes, uint64_t seed = 0);  // XXH3
uint64_t Digest(std::string_view text, uint64_t seed = 0);
// Digest of a file's content. Reads it in pieces, so memory use does not grow with the file. Throws
// kNotFound.
uint64_t FileDigest(const std::filesystem::path& path, uint64_t seed = 0);

}  // namespace pd
