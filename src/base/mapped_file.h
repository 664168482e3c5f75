// A whole file, read-only, in the address space.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace pd {

// Immutable after Open; any thread may read. Views of bytes() live as long as the MappedFile: keep the
// shared_ptr beside them.
class MappedFile {
 public:
  // Throws kNotFound, or kCorruptFile for what is no regular file. An empty file maps to an empty span.
  static std::shared_ptr<const MappedFile> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Says that this part of some MappedFile is not read again soon: its pages leave the process's memory, and
  // come back from the system's cache or the disk when they are. `part` must lie in a MappedFile.
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
