#include "cli/terminal.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/error.h"

namespace pd::cli {

bool WriteOutput(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(size_t(written));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno != EINTR) {
      throw Fail(ErrorKind::kDevice, "standard output cannot be written: {}",
                 std::generic_category().message(errno));
    }
  }
  return true;
}

std::string ReadInput(const Interrupt& interrupt, size_t limit) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t size = read(STDIN_FILENO, buffer.data(), buffer.size());
    interrupt.Check();
    if (size == 0) return text;
    if (size < 0 && errno == EINTR) continue;
    if (size < 0)
      throw Fail(ErrorKind::kBadRequest, "standard input cannot be read: {}",
                 std::generic_category().message(errno));
    text.append(buffer.data(), size_t(size));
    if (text.size() > limit)
      throw Fail(ErrorKind::kBadRequest, "standard input holds more than {} bytes: no context is that long",
                 limit);
  }
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
  fmt::print(stderr, "\r{} [{}] {:3.0f} %", label_, bar, 100 * share);
  std::fflush(stderr);
}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace pd::cli
