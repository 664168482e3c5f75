// The three standard streams.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace pd::cli {

// Descriptors 0 to 2 that are closed are opened, so that no file gets one of those numbers and with it what
// was meant for a stream. Reading such an input and writing such an output fails, so that no result is lost
// unsaid; messages are dropped. Call first in main.
void OpenStandardStreams();

// Writes to standard error, or not: a message that cannot be written changes nothing else. Any thread.
void Report(std::string_view text) noexcept;

// Writes all of `text` to standard output at once. False when whoever reads it went away; throws kDevice for
// what else may happen to a file, a full disk say.
bool WriteOutput(std::string_view text);

bool InputIsTerminal();
bool ErrorIsTerminal();

// A bar on standard error, if that is a terminal and the work takes longer than half a second. Gone when
// destroyed.
class ProgressBar {
 public:
  ProgressBar(std::string label, bool wanted)
      : label_(std::move(label)), shown_(wanted && ErrorIsTerminal()) {}
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(size_t done, size_t total);  // draws at most ten times a second

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool shown_;  // may be shown at all
  bool drawn_ = false;
  Clock::time_point next_ = Clock::now() + std::chrono::milliseconds(500);
};

}  // namespace pd::cli
