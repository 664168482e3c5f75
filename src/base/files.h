// Whole small files, and files that are written: nothing of anybody else's is lost, and a reader never sees
// half of one.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pd {

// Throws kNotFound; kCorruptFile above `limit` bytes, since a model's text file is never gigabytes.
std::string ReadTextFile(const std::filesystem::path& path, size_t limit = size_t(64) << 20);

// A file of ours: written to a temporary name beside `path`, then renamed; a link stays, and what it leads to
// is replaced. On failure throws kDevice and leaves nothing behind, and so for what exists and is no regular
// file.
void WriteFileAtomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

// Standard input, as the name of an input; standard output, as that of an output.
inline constexpr const char* kStream = "-";

// What a path leads to, through links. The last one may lead to what does not exist yet. Throws kBadRequest
// for links that lead in a circle.
std::filesystem::path FollowLinks(std::filesystem::path path);

// Which file a path names, or kStream: nullopt when it does not exist, or is no regular file.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};
std::optional<FileId> FileIdOf(const std::filesystem::path& input);

// Examines an output before anything is opened for writing: throws kBadRequest for an empty name, for a
// folder, and for what is the same file as one of `inputs`, by whatever name, or a file in an input that is a
// folder; kDevice for a folder that is not there or cannot be written.
void CheckOutput(const std::filesystem::path& output, std::span<const std::filesystem::path> inputs);

// The system's words for an errno, "Permission denied".
std::string SystemMessage(int error);
// Throws what an output that failed with this errno deserves: kCancelled for EINTR, else kDevice.
[[noreturn]] void ThrowCannotWrite(const std::filesystem::path& path, int error);

// Writes all of `bytes` to an open file. False when whoever read a pipe or a socket went away; throws
// kDevice, naming `where`, for what else may happen: a full disk, say.
bool WriteAll(int descriptor, std::span<const std::byte> bytes, const std::string& where);

// What the user named as output. A regular file, and one that does not exist, are written under a temporary
// name, which Publish renames: all of it appears, or nothing. Devices, pipes and standard output are written
// through. Opening a pipe waits for its reader. Not thread-safe.
class OutputFile {
 public:
  // Throws kDevice; kCancelled when a signal ends the wait for a reader.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool Write(std::span<const std::byte> bytes);  // as WriteAll
  void Publish();                                // throws kDevice

 private:
  void OpenTemporary(const std::optional<mode_t>& mode);
  void Close();

  std::filesystem::path path_, target_, temporary_;  // temporary_: empty when written through
  int descriptor_ = -1;
  bool owned_ = true;  // the descriptor is ours to close
};

// All of a text at once: as OutputFile. False when the reader went away.
bool WriteOutputFile(const std::filesystem::path& path, std::string_view text);

}  // namespace pd
