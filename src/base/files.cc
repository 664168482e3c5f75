#include "base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/error.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

constexpr int kMostLinks = 40;         // as Linux follows them
constexpr int kMostTemporaries = 100;  // names that are tried

std::optional<struct stat> StatusOf(const fs::path& path) {
  struct stat status{};
  if (path == kStream ? ::fstat(STDIN_FILENO, &status) != 0 : ::stat(path.c_str(), &status) != 0)
    return std::nullopt;
  return status;
}

std::optional<FileId> RegularId(const std::optional<struct stat>& status) {
  if (!status || !S_ISREG(status->st_mode)) return std::nullopt;
  return FileId{status->st_dev, status->st_ino};
}

// What an output leads to.
struct Place {
  fs::path target;                    // to be opened
  std::optional<struct stat> status;  // nullopt: it does not exist
  bool through = false;               // written through, and not replaced
};

Place PlaceOf(const fs::path& path) {
  Place place{path, StatusOf(path)};
  // Links of /proc lead to pipes and to deleted files, which have no name: only the system can follow those.
  if (place.status && !S_ISREG(place.status->st_mode)) {
    place.through = true;
    return place;
  }
  const fs::path target = FollowLinks(path);
  place.through = place.status && FileIdOf(target) != RegularId(place.status);
  if (!place.through) place.target = target;
  return place;
}

bool IsInput(const FileId& output, const fs::path& input) {
  if (FileIdOf(input) == output) return true;
  std::error_code error;
  if (input == kStream || !fs::is_directory(input, error)) return false;
  for (const auto& entry : fs::directory_iterator(input, error))
    if (FileIdOf(entry.path()) == output) return true;
  return false;
}

}  // namespace

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
  const fs::path named = path == kStream ? fs::path(".") / path : path;  // a name like others here
  if (PlaceOf(named).through)
    throw Fail(ErrorKind::kDevice, "{}: cannot be written: it is no regular file", path.string());
  OutputFile file(named);
  file.Write(bytes);
  file.Publish();
}

void WriteFileAtomically(const fs::path& path, std::string_view text) {
  WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

fs::path FollowLinks(fs::path path) {
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    if (links == kMostLinks)
      throw Fail(ErrorKind::kBadRequest, "{}: its links lead in a circle; give another name", path.string());
    const fs::path next = fs::read_symlink(path, error);
    if (error) return path;  // whoever opens it says what is wrong
    path = path.parent_path() / next;
  }
  return path;
}

std::optional<FileId> FileIdOf(const fs::path& input) { return RegularId(StatusOf(input)); }

void CheckOutput(const fs::path& output, std::span<const fs::path> inputs) {
  if (output.empty()) throw Fail(ErrorKind::kBadRequest, "the output's name is empty; give a file");
  std::optional<struct stat> status;
  if (output == kStream) {
    struct stat standard{};
    if (::fstat(STDOUT_FILENO, &standard) == 0) status = standard;
  } else {
    const Place place = PlaceOf(output);
    status = place.status;
    if (status && S_ISDIR(status->st_mode))
      throw Fail(ErrorKind::kBadRequest, "{}: is a folder; give a file", output.string());
    const fs::path& target = place.target;
    const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
    const bool writable = (!status || ::access(target.c_str(), W_OK) == 0) &&
                          (place.through || ::access(folder.c_str(), W_OK) == 0);
    if (!writable) ThrowCannotWrite(output, errno);
  }
  const auto id = RegularId(status);
  if (!id) return;
  for (const fs::path& input : inputs)
    if (IsInput(*id, input))
      throw Fail(ErrorKind::kBadRequest,
                 "{}: the output is the same file as the input {}; give another output", output.string(),
                 input.string());
}

std::string SystemMessage(int error) { return std::generic_category().message(error); }

void ThrowCannotWrite(const fs::path& path, int error) {
  if (error == EINTR) throw Fail(ErrorKind::kCancelled, "interrupted");
  throw Fail(ErrorKind::kDevice, "{}: cannot be written: {}", path.string(), SystemMessage(error));
}

bool WriteAll(int descriptor, std::span<const std::byte> bytes, const std::string& where) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(size_t(written));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno != EINTR) {
      throw Fail(ErrorKind::kDevice, "{} cannot be written: {}", where, SystemMessage(errno));
    }
  }
  return true;
}

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
  if (path_ == kStream) {
    descriptor_ = STDOUT_FILENO;
    owned_ = false;
    return;
  }
  Place place = PlaceOf(path_);
  target_ = std::move(place.target);
  if (!place.through) {
    OpenTemporary(place.status ? std::optional(mode_t(place.status->st_mode & 07777)) : std::nullopt);
    return;
  }
  descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor_ < 0) ThrowCannotWrite(path_, errno);
}

// A name that nobody has: what lies there is not ours to replace.
void OutputFile::OpenTemporary(const std::optional<mode_t>& mode) {
  const std::string name = target_.filename().string();
  for (int i = 0; i < kMostTemporaries; ++i) {
    const std::string suffix = fmt::format(".tmp{}{}", ::getpid(), i > 0 ? fmt::format("-{}", i) : "");
    temporary_ = target_.parent_path() / (name.substr(0, 200) + suffix);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) break;
    if (errno != EEXIST) ThrowCannotWrite(path_, errno);
  }
  if (descriptor_ < 0) ThrowCannotWrite(path_, EEXIST);
  if (mode) ::fchmod(descriptor_, *mode);  // where it cannot be kept, the file is readable as any new one
}

OutputFile::~OutputFile() {
  Close();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::Close() {
  if (owned_ && descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

bool OutputFile::Write(std::span<const std::byte> bytes) {
  return WriteAll(descriptor_, bytes, owned_ ? path_.string() + ":" : "standard output");
}

void OutputFile::Publish() {
  if (temporary_.empty()) return;
  const int closed = ::close(descriptor_);  // some file systems say here that the disk is full
  const int error = errno;
  descriptor_ = -1;
  if (closed != 0 && error != EINTR) ThrowCannotWrite(path_, error);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) ThrowCannotWrite(path_, errno);
  temporary_.clear();
}

bool WriteOutputFile(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  if (!file.Write(std::as_bytes(std::span(text)))) return false;
  file.Publish();
  return true;
}

}  // namespace pd
