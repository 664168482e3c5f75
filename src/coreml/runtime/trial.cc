#include "coreml/runtime/trial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "coreml/runtime/zeros.h"

// The child inherits this process's environment.
extern char** environ;  // NOLINT(readability-redundant-declaration): no macOS header declares it

namespace pd {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(10);
constexpr int kFirstCode = 64;  // lower exit codes come from a program that failed before the trial

class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // 0, or the error number.
  int Start(std::vector<std::string>& words) {
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    if (const int error = posix_spawn_file_actions_init(&files)) return error;
    int error = posix_spawnattr_init(&attributes);
    // Its own process group: Ctrl-C in a terminal goes to this process, which then ends the child.
    if (error == 0) error = posix_spawnattr_setpgroup(&attributes, 0);
    if (error == 0) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    for (const int descriptor : {0, 1, 2})
      if (error == 0) error = posix_spawn_file_actions_addopen(&files, descriptor, "/dev/null", O_RDWR, 0);
    if (error == 0) error = posix_spawn(&pid_, arguments[0], &files, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) pid_ = 0;
    return error;
  }

  // Whether it has ended; *status is set by waitpid.
  bool Ended(int* status) {
    const pid_t ended = waitpid(pid_, status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    pid_ = 0;
    return true;
  }

 private:
  pid_t pid_ = 0;
};

Status StatusOf(int wait_status, const std::string& function) {
  if (WIFSIGNALED(wait_status))
    return Status::Fail(Code::kCrashed, fmt::format("the trial of function '{}' was killed by signal {}",
                                                    function, WTERMSIG(wait_status)));
  const int exit_code = WEXITSTATUS(wait_status);
  if (exit_code == TrialExitCode({})) return {};
  const int code = exit_code - kFirstCode;
  if (code <= int(Code::kOk) || code > int(Code::kCancelled))
    return Status::Fail(Code::kFailed, fmt::format("the trial of function '{}' ended with exit code {}",
                                                   function, exit_code));
  return Status::Fail(Code(code),
                      fmt::format("the trial of function '{}' ended: {}", function, Name(Code(code))));
}

}  // namespace

int TrialExitCode(const Status& status) { return status.ok() ? 0 : kFirstCode + int(status.code); }

Status TryFunction(CoreMl& core_ml, const std::filesystem::path& compiled, const std::string& function) {
  std::unique_ptr<LoadedFunction> loaded;
  Status status = core_ml.Load(compiled, function, Units::kCpuAndNeuralEngine, {}, &loaded);
  if (!status.ok()) return status;
  const ZeroInputs zeros(loaded->Interface());
  std::unique_ptr<ModelState> state;
  if (!loaded->Interface().states.empty()) status = loaded->NewState(&state);
  std::map<std::string, Result> results;
  if (status.ok()) status = loaded->Predict(zeros.tensors(), {}, state.get(), &results);
  if (!status.ok()) return status;
  for (const auto& [name, shape] : loaded->Interface().outputs) {
    const auto it = results.find(name);
    if (it == results.end() || !it->second.half || it->second.shape != shape)
      return Status::Fail(Code::kBadResult, fmt::format("'{}' is missing or of another shape", name));
  }
  return {};
}

Trial TrialByProcess(std::vector<std::string> command, double most_seconds) {
  return [command = std::move(command), most_seconds](const std::filesystem::path& compiled,
                                                      const std::string& function,
                                                      const CancelCheck& cancelled) -> Status {
    std::vector<std::string> words = command;
    words.push_back(compiled.string());
    words.push_back(function);
    Child child;
    if (const int error = child.Start(words))
      return Status::Fail(Code::kFailed, fmt::format("{}: {}", words[0], std::strerror(error)));
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(most_seconds);
    for (int wait_status = 0;;) {
      if (child.Ended(&wait_status)) return StatusOf(wait_status, function);
      if (cancelled && cancelled()) return Status::Fail(Code::kCancelled, "cancelled");
      if (std::chrono::steady_clock::now() > end)
        return Status::Fail(Code::kTimedOut, fmt::format("the trial of function '{}' took more than {:.0f} s",
                                                         function, most_seconds));
      std::this_thread::sleep_for(kPollInterval);
    }
  };
}

}  // namespace pd
