// Errors that the library throws, and checks for bugs in the library itself.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace pd {

// Each kind maps to one process exit code (cli) and one HTTP status (server).
enum class ErrorKind {
  kBadRequest,   // the caller's mistake: an unknown flag, an empty prompt, a prompt longer than the context
  kNotFound,     // a missing file, model or device
  kUnsupported,  // well-formed, but not supported by this build
  kCorruptFile,  // a file that is not what it claims to be
  kOutOfMemory,  // predicted before the work, or seen during it
  kDevice,       // a device failed at run time
  kCancelled,    // the caller cancelled
  kBusy,         // no room now: the same request may succeed later
};

// The kind's stable name, for JSON and logs: "bad_request", "not_found", ...
const char* Name(ErrorKind kind);

// `text` as one line of valid UTF-8: control characters and invalid bytes become '?'.
std::string OneLine(std::string_view text);

// Bad input or a failed device. The message is one line: what (file, field or flag), why, and the remedy.
// OneLine is applied to it, since it may quote names from a damaged file.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(OneLine(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// throw Fail(ErrorKind::kNotFound, "{}: no such file", path);
template <class... Args>
Error Fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace pd

// For bugs in this program, never a user's mistake: prints the expression and aborts. On in every build.
#define PD_CHECK(expression) \
  (static_cast<bool>(expression) ? void(0) : ::pd::CheckFailed(__FILE__, __LINE__, #expression))
