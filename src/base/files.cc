#include "base/files.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace pd {
namespace fs = std::filesystem;

std::string ReadTextFile(const fs::path& path, size_t limit) {
  std::error_code error;
  if (!fs::exists(path, error)) throw Fail(ErrorKind::kNotFound, "{}: no such file", path.string());
  if (!fs::is_regular_file(path, error))
    throw Fail(ErrorKind::kCorruptFile, "{}: not a regular file", path.string());
  const uintmax_t size = fs::file_size(path, error);
  if (error) throw Fail(ErrorKind::kNotFound, "{}: {}", path.string(), error.message());
  if (size > limit)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} bytes, more than the {} allowed", path.string(), size, limit);
  std::ifstream in(path, std::ios::binary);
  std::string text(size_t(size), '\0');
  if (!in.read(text.data(), std::streamsize(size)))
    throw Fail(ErrorKind::kNotFound, "{}: cannot be read", path.string());
  return text;
}

void WriteFileAtomically(const fs::path& path, std::span<const std::byte> bytes) {
  fs::path temporary = path;
  temporary += fmt::format(".tmp{}", ::getpid());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  out.close();
  std::error_code error;
  if (out) fs::rename(temporary, path, error);
  if (out && !error) return;
  const std::string why = error ? error.message() : std::strerror(errno);
  fs::remove(temporary, error);
  throw Fail(ErrorKind::kDevice, "{}: cannot be written: {}", path.string(), why);
}

void WriteFileAtomically(const fs::path& path, std::string_view text) {
  WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

}  // namespace pd
