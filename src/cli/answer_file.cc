#include "cli/answer_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "cli/batch_lines.h"
#include "cli/report.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "run";            // digest of the settings, in every answer
constexpr const char* kSettings = "settings";  // themselves, in the first

}  // namespace

AnswerFile::AnswerFile(fs::path path, std::span<const std::string_view> questions,
                       std::span<const fs::path> inputs)
    : path_(std::move(path)), questions_(questions) {
  CheckOutput(path_, inputs);
  if (path_ == kStream) {
    file_ = STDOUT_FILENO;
    resumable_ = false;
    return;
  }
  struct stat status{};
  if (::stat(path_.c_str(), &status) != 0) return;  // made by Start
  resumable_ = S_ISREG(status.st_mode);
  if (!resumable_) return;  // opened by Start: a pipe waits for its reader
  file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (file_ < 0) ThrowCannotWrite(path_, errno);
  try {
    Examine();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

AnswerFile::~AnswerFile() {
  if (file_ >= 0 && path_ != kStream) ::close(file_);
}

std::string AnswerFile::StartOf(size_t index) const {
  return index < questions_.size() ? BatchAnswerStart(int(index) + 1, Digest(questions_[index])) : "";
}

void AnswerFile::Examine() {
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) Refuse("another batch is writing it");
  std::vector<char> part(size_t(1) << 16);
  std::string rest;
  for (;;) {
    const ssize_t size = ::pread(file_, part.data(), part.size(), off_t(whole_ + rest.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) ThrowCannotWrite(path_, errno);
    if (size == 0) break;
    rest.append(part.data(), size_t(size));
    size_t begin = 0;
    for (size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1)
      ExamineLine(std::string_view(rest).substr(begin, end - begin));
    whole_ += begin;
    rest.erase(0, begin);
    // A long line is not read to its end when it does not begin as an answer does.
    if (rest.size() >= part.size() && !rest.starts_with(StartOf(done_))) break;
  }
  if (rest.empty()) return;
  // Half an answer, which is cut off: of ours it begins as the next one does. Where no whole answer proves
  // whose the file is, it must tell its question's digest.
  const std::string start = StartOf(done_);
  const bool ours = !start.empty() && (rest.starts_with(start) || (done_ > 0 && start.starts_with(rest)));
  if (!ours) Refuse(fmt::format("line {} is no answer to line {} of the input", done_ + 1, done_ + 1));
}

void AnswerFile::ExamineLine(std::string_view line) {
  if (done_ >= questions_.size() || !line.starts_with(StartOf(done_)))
    Refuse(fmt::format("line {} does not answer line {} of the input", done_ + 1, done_ + 1));
  if (done_ == 0) first_ = line;
  ++done_;
}

void AnswerFile::CheckSettings(const Json& settings) const {
  if (done_ == 0) return;
  Json earlier;
  try {
    earlier = ParseBatchLine(first_, path_.string() + ": line 1");
  } catch (const Error& error) {
    Refuse(error.what());
  }
  if (!earlier.contains(kSettings) || !earlier[kSettings].is_object())
    Refuse("its first answer does not say what model and settings it was made with");
  const Json& before = earlier[kSettings];
  std::string differences;
  const auto differs = [&](const std::string& name, const std::string& then, const std::string& now) {
    differences += fmt::format("{}{} was {}, now {}", differences.empty() ? "" : "; ", name, then, now);
  };
  for (const auto& [name, value] : before.items())
    if (!settings.contains(name))
      differs(name, value.dump(), "not set");
    else if (settings[name] != value)
      differs(name, value.dump(), settings[name].dump());
  for (const auto& [name, value] : settings.items())
    if (!before.contains(name)) differs(name, "not set", value.dump());
  if (differences.empty()) return;
  throw Fail(ErrorKind::kBadRequest,
             "{}: its answers were made with other settings: {}; continue with those, or give another output",
             path_.string(), differences);
}

void AnswerFile::Start(const Json& settings) {
  settings_ =
      Json::parse(ToLine(settings));  // as a later run reads them: flags may hold bytes that JSON cannot
  CheckSettings(settings_);
  run_ = fmt::format("{:016x}", Digest(settings_.dump()));
  if (!resumable_) {
    if (file_ < 0) file_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (file_ < 0) ThrowCannotWrite(path_, errno);
    return;
  }
  if (file_ < 0) {
    // Nothing was there: what came since then is not ours.
    file_ = ::open(FollowLinks(path_).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (file_ < 0) ThrowCannotWrite(path_, errno);
    ::flock(file_, LOCK_EX | LOCK_NB);
  } else if (::ftruncate(file_, off_t(whole_)) != 0) {
    ThrowCannotWrite(path_, errno);
  }
}

Json AnswerFile::RunOf(size_t index) const {
  Json run = {{kRun, run_}};
  if (index == 0) run[kSettings] = settings_;
  return run;
}

bool AnswerFile::Add(size_t index, std::string line) {
  waiting_[index] = std::move(line);
  for (auto next = waiting_.begin(); next != waiting_.end() && next->first == done_; ++done_) {
    if (!WriteAll(file_, std::as_bytes(std::span(next->second)), path_.string() + ":")) return false;
    next = waiting_.erase(next);
  }
  return true;
}

void AnswerFile::Refuse(const std::string& what) const {
  throw Fail(ErrorKind::kBadRequest,
             "{}: {}; it stays as it is: give another output file, or remove this one yourself",
             path_.string(), what);
}

}  // namespace pd::cli
