#include "coreml/export/partial_folder.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/error.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPartial = ".partial-";    // being written
constexpr const char* kReplaced = ".replaced-";  // about to be removed

bool ProcessExists(std::string_view digits) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (error != std::errc() || end != digits.data() + digits.size() || pid <= 0)
    return true;  // not one of ours
  return ::kill(pid, 0) == 0 || errno != ESRCH;
}

void RemoveLeftovers(const fs::path& target) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(target.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    for (const char* suffix : {kPartial, kReplaced}) {
      const std::string prefix = target.filename().string() + suffix;
      if (name.starts_with(prefix) && !ProcessExists(std::string_view(name).substr(prefix.size())))
        fs::remove_all(entry.path(), error);
    }
  }
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& target, std::string marker)
    : target_(fs::absolute(target).lexically_normal()), marker_(std::move(marker)) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "DIR/"
  const bool replaceable = !fs::exists(target_) || (fs::is_directory(target_) && fs::is_empty(target_)) ||
                           fs::exists(target_ / marker_);
  if (!replaceable)
    throw Fail(ErrorKind::kBadRequest, "{}: exists and holds no {}; choose another folder or remove it",
               target_.string(), marker_);
  path_ = target_;
  path_ += kPartial + std::to_string(::getpid());
  std::error_code error;
  fs::create_directories(target_.parent_path(), error);
  RemoveLeftovers(target_);
  fs::remove_all(path_, error);
  if (!fs::create_directory(path_, error))
    throw Fail(ErrorKind::kDevice, "{}: cannot be made: {}", path_.string(), error.message());
}

PartialFolder::~PartialFolder() {
  std::error_code error;
  if (!published_) fs::remove_all(path_, error);
}

void PartialFolder::Publish() {
  // What is replaced steps aside first; a kill between the two renames leaves no bundle, which is not a half
  // one.
  fs::path old = target_;
  old += kReplaced + std::to_string(::getpid());
  std::error_code error;
  if (fs::exists(target_)) fs::rename(target_, old, error);
  if (!error) fs::rename(path_, target_, error);
  if (error) throw Fail(ErrorKind::kDevice, "{}: cannot be renamed: {}", path_.string(), error.message());
  published_ = true;
  fs::remove_all(old, error);
}

}  // namespace pd
