// Ctrl-C as a flag.
#pragma once
#include <atomic>

namespace pd::cli {

// While it lives, the first SIGINT sets the flag and the second ends the process as usual. One at a time, in
// main.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>& flag() const;
  void Check() const;  // throws kCancelled once the flag is set
};

}  // namespace pd::cli
