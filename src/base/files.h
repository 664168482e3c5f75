// Whole small files, written so that a reader never sees half of one.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace pd {

// Throws kNotFound; kCorruptFile above `limit` bytes (a text file of a model is never gigabytes).
std::string ReadTextFile(const std::filesystem::path& path, size_t limit = size_t(64) << 20);

// Writes to a temporary name beside `path`, then renames. On failure throws kDevice and leaves nothing
// behind.
void WriteFileAtomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

}  // namespace pd
