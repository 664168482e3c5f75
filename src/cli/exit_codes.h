// What the process says to the shell.
#pragma once
#include "base/error.h"

namespace pd::cli {

inline constexpr int kOk = 0;
inline constexpr int kInternal = 1;        // a fault of ours
inline constexpr int kOutputClosed = 141;  // whoever read our output went away, as if SIGPIPE had ended us

int ExitCode(ErrorKind kind);

// The list for --help.
extern const char kExitCodes[];

}  // namespace pd::cli
