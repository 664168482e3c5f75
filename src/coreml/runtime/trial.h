// A function's first prediction, in a process of its own: a failed compile for the engine was seen to load
// and then kill its process at the first prediction.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "coreml/runtime/core_ml.h"

namespace pd {

using Trial = std::function<Status(const std::filesystem::path& compiled, const std::string& function,
                                   const CancelCheck& cancelled)>;

// Starts `command` (a program and its first arguments) with the compiled model's path and the function's name
// added, and waits for it. The program is to end with TrialExitCode(TryFunction(...)). kCrashed when it is
// killed, kTimedOut when it does not end in `most_seconds`, then it is killed.
Trial TrialByProcess(std::vector<std::string> command, double most_seconds);

// What the process does: load, predict once on zeros, look at the results.
Status TryFunction(CoreMl& core_ml, const std::filesystem::path& compiled, const std::string& function);
int TrialExitCode(const Status& status);

}  // namespace pd
