#include "cli/exit_codes.h"

namespace pd::cli {

const char kExitCodes[] =
    "exit codes:\n"
    "  0    done\n"
    "  1    a fault of pd-engine itself\n"
    "  2    an invalid flag, prompt or number\n"
    "  3    a file, model or device that was not found\n"
    "  4    a model or device that this build does not support\n"
    "  5    a file that is damaged or not what it claims to be\n"
    "  6    not enough memory\n"
    "  7    a device failed\n"
    "  8    no room now, try again later\n"
    "  130  interrupted with Ctrl-C\n"
    "  141  the reader of the output went away\n";

int ExitCode(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadRequest:
      return 2;
    case ErrorKind::kNotFound:
      return 3;
    case ErrorKind::kUnsupported:
      return 4;
    case ErrorKind::kCorruptFile:
      return 5;
    case ErrorKind::kOutOfMemory:
      return 6;
    case ErrorKind::kDevice:
      return 7;
    case ErrorKind::kCancelled:
      return 130;
    case ErrorKind::kBusy:
      return 8;
  }
  return kInternal;
}

}  // namespace pd::cli
