#include "cli/interrupt.h"

#include <csignal>

#include "base/error.h"

namespace pd::cli {
namespace {

// A signal handler has no argument: this is the one variable that must be global.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void Handle(int) { interrupted.store(true); }

}  // namespace

Interrupt::Interrupt() {
  interrupted = false;
  struct sigaction action{};
  action.sa_handler = Handle;
  action.sa_flags = int(SA_RESETHAND);  // and not SA_RESTART: a read that waits for the user ends too
  sigaction(SIGINT, &action, nullptr);
}

Interrupt::~Interrupt() { std::signal(SIGINT, SIG_DFL); }

const std::atomic<bool>& Interrupt::flag() const { return interrupted; }

void Interrupt::Check() const {
  if (interrupted) throw Fail(ErrorKind::kCancelled, "interrupted");
}

}  // namespace pd::cli
