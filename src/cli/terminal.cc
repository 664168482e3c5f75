#include "cli/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace pd::cli {

void OpenStandardStreams() {
  // The lowest free number is taken. Opened the wrong way round: what is closed cannot be used.
  for (const auto& [stream, mode] : {std::pair(STDIN_FILENO, O_WRONLY), std::pair(STDOUT_FILENO, O_RDONLY),
                                     std::pair(STDERR_FILENO, O_RDONLY)})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode) < 0) return;
}

void Report(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(size_t(written));
  }
}

bool WriteOutput(std::string_view text) {
  return WriteAll(STDOUT_FILENO, std::as_bytes(std::span(text)), "standard output");
}

bool InputIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool ErrorIsTerminal() { return isatty(STDERR_FILENO) == 1; }

void ProgressBar::Show(size_t done, size_t total) {
  constexpr size_t kWidth = 30;
  const auto now = Clock::now();
  if (!shown_ || total == 0 || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  drawn_ = true;
  const double share = double(done) / double(total);
  std::string bar(kWidth, ' ');
  bar.replace(0, size_t(share * kWidth), size_t(share * kWidth), '#');
  Report(fmt::format("\r{} [{}] {:3.0f} %", label_, bar, 100 * share));
}

ProgressBar::~ProgressBar() {
  if (drawn_) Report("\r\x1b[K");
}

}  // namespace pd::cli
