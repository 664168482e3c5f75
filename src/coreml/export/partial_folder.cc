#include "coreml/export/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/error.h"
#include "base/files.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPartial = ".partial-";    // being written
constexpr const char* kReplaced = ".replaced-";  // about to be removed
constexpr int kMostNames = 100;                  // that are tried

std::error_code LastError() { return {errno, std::generic_category()}; }

// Both exist. False where the system cannot.
bool Exchange(const fs::path& a, const fs::path& b) {
#if defined(__APPLE__)
  return ::renamex_np(a.c_str(), b.c_str(), RENAME_SWAP) == 0;
#elif defined(RENAME_EXCHANGE)
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
#else
  return false;
#endif
}

// Folders below `folder` that are empty, and itself.
void RemoveEmpty(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> folders = {folder};
  for (const auto& entry : fs::recursive_directory_iterator(folder, error))
    if (fs::is_directory(entry.symlink_status(error))) folders.push_back(entry.path());
  std::ranges::sort(folders, std::greater());  // inner ones first
  for (const fs::path& one : folders) ::rmdir(one.c_str());
}

void RemoveFiles(const fs::path& folder, const std::vector<std::string>& files) {
  for (const std::string& name : files)
    if (const fs::path file = fs::path(name).lexically_normal(); file.is_relative() && *file.begin() != "..")
      ::unlink((folder / file).c_str());
  RemoveEmpty(folder);
}

// What is left of `from` goes to the same places of `to`, where nothing lies yet.
void MoveRest(const fs::path& from, const fs::path& to) {
  std::error_code error;
  std::vector<fs::path> rest;
  for (const auto& entry : fs::recursive_directory_iterator(from, error))
    if (!fs::is_directory(entry.symlink_status(error))) rest.push_back(entry.path().lexically_relative(from));
  for (const fs::path& name : rest) {
    const fs::path place = to / name;
    if (fs::exists(fs::symlink_status(place, error))) continue;
    fs::create_directories(place.parent_path(), error);
    fs::rename(from / name, place, error);
  }
  RemoveEmpty(from);
}

// Whether a folder is one that an export left unfinished: its mark is there, and nobody holds it.
bool IsAbandoned(const fs::path& folder) {
  const int mark = ::open((folder / kPartialMark).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (mark < 0) return false;
  const bool free = ::flock(mark, LOCK_EX | LOCK_NB) == 0;
  ::close(mark);
  return free;
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& target, OwnFiles own_files) : own_files_(std::move(own_files)) {
  if (target.empty()) throw Fail(ErrorKind::kBadRequest, "the output's name is empty; give a folder");
  std::error_code error;
  fs::path named = fs::absolute(target);
  if (!named.has_filename()) named = named.parent_path();  // "DIR/"
  target_ = fs::weakly_canonical(FollowLinks(named), error);
  if (error) throw Fail(ErrorKind::kDevice, "{}: cannot be made: {}", target.string(), error.message());
  CheckTarget();
  fs::create_directories(target_.parent_path(), error);
  RemoveLeftovers();
  Make();
  try {
    Mark();
  } catch (...) {
    ::rmdir(path_.c_str());
    throw;
  }
}

bool PartialFolder::ReplacesTarget() const {
  std::error_code error;
  return fs::exists(fs::symlink_status(target_, error));
}

void PartialFolder::CheckTarget() const {
  std::error_code error;
  if (!ReplacesTarget()) return;
  if (!fs::is_directory(target_, error))
    throw Fail(ErrorKind::kBadRequest, "{}: exists and is no folder; choose another one", target_.string());
  if (!fs::is_empty(target_, error)) own_files_(target_);
}

void PartialFolder::RemoveLeftovers() const {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(target_.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    for (const char* suffix : {kPartial, kReplaced})
      if (name.starts_with(target_.filename().string() + suffix) &&
          fs::is_directory(entry.symlink_status(error)))
        found.push_back(entry.path());
  }
  for (const fs::path& folder : found) {
    if (fs::exists(folder / kPartialMark, error)) {
      if (IsAbandoned(folder)) fs::remove_all(folder, error);
      continue;
    }
    try {
      RemoveFiles(folder, own_files_(folder));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): there is nothing to do
      // Somebody's own.
    }
  }
}

void PartialFolder::Make() {
  std::error_code error;
  for (int i = 0; i < kMostNames; ++i) {
    path_ = target_;
    path_ += fmt::format("{}{}{}", kPartial, ::getpid(), i > 0 ? fmt::format("-{}", i) : "");
    if (fs::create_directory(path_, error)) return;
    if (error) break;
  }
  throw Fail(ErrorKind::kDevice, "{}: cannot be made: {}", path_.string(),
             error ? error.message() : std::make_error_code(std::errc::file_exists).message());
}

void PartialFolder::Mark() {
  mark_ = ::open((path_ / kPartialMark).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (mark_ < 0)
    throw Fail(ErrorKind::kDevice, "{}: cannot be written: {}", path_.string(), LastError().message());
  ::flock(mark_, LOCK_EX | LOCK_NB);
}

PartialFolder::~PartialFolder() {
  std::error_code error;
  if (!published_) fs::remove_all(path_, error);
  if (mark_ >= 0) ::close(mark_);
}

void PartialFolder::Publish() {
  CheckTarget();
  std::error_code error;
  fs::path old = path_;  // once the folders are exchanged
  const bool replaces = ReplacesTarget();
  const std::vector<std::string> own =
      replaces && !fs::is_empty(target_, error) ? own_files_(target_) : std::vector<std::string>();
  if (!replaces || !Exchange(path_, target_)) {
    if (replaces) {
      // In two steps: a kill between them leaves no bundle, which is not a half one.
      old = target_;
      old += fmt::format("{}{}", kReplaced, ::getpid());
      fs::rename(target_, old, error);
    }
    if (!error) fs::rename(path_, target_, error);
    if (error) throw Fail(ErrorKind::kDevice, "{}: cannot be renamed: {}", path_.string(), error.message());
  }
  published_ = true;
  ::unlink((target_ / kPartialMark).c_str());
  if (!replaces) return;
  RemoveFiles(old, own);
  if (fs::exists(old, error)) MoveRest(old, target_);
}

}  // namespace pd
