// A whole file mapped read-only into memory.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace pd {

// Immutable after Open; any thread may read. Views of bytes() are valid while the MappedFile lives: keep the
// shared_ptr with them.
class MappedFile {
 public:
  // Throws kNotFound, or kCorruptFile if it is not a regular file. An empty file maps to an empty span.
  static std::shared_ptr<const MappedFile> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Hints that `part`, which must lie in a MappedFile, is not read again soon. Its pages leave the process's
  // memory; a later read brings them back from the system's cache or the disk.
  static void Forget(std::span<const std::byte> part);

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace pd
