#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace pd {

std::shared_ptr<const MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  const int fd =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not wait for its writer
  if (fd < 0) throw Fail(ErrorKind::kNotFound, "{}: {}", path.string(), std::strerror(errno));
  struct stat info{};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const size_t size = regular ? size_t(info.st_size) : 0;
  void* data = size ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int map_error = errno;
  ::close(fd);
  if (!regular) throw Fail(ErrorKind::kCorruptFile, "{}: not a regular file", path.string());
  if (data == MAP_FAILED)
    throw Fail(ErrorKind::kOutOfMemory, "{}: cannot map {} bytes: {}", path.string(), size,
               std::strerror(map_error));
  return std::shared_ptr<const MappedFile>(new MappedFile(path, {static_cast<const std::byte*>(data), size}));
}

void MappedFile::Forget(std::span<const std::byte> part) {
  static const auto kPage = size_t(::sysconf(_SC_PAGESIZE));
  // Only whole pages: the pages at both ends may hold data that is still read.
  const size_t before = (kPage - uintptr_t(part.data()) % kPage) % kPage;
  if (part.size() < before + kPage) return;
  const std::span<const std::byte> pages = part.subspan(before, (part.size() - before) / kPage * kPage);
  ::madvise(const_cast<std::byte*>(pages.data()), pages.size(), MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace pd
