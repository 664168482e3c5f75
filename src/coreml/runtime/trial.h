// Makes a function's first prediction in a separate process: functions whose compilation for the engine had
// failed were seen to load and then kill their process at the first prediction.
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
// appended, and waits for it. The program must end with TrialExitCode(TryFunction(...)). kCrashed if it is
// killed; kTimedOut if it does not end in `most_seconds`, after which it is killed.
Trial TrialByProcess(std::vector<std::string> command, double most_seconds);

// Runs in that process: loads, predicts once on zeros, checks the results.
Status TryFunction(CoreMl& core_ml, const std::filesystem::path& compiled, const std::string& function);
int TrialExitCode(const Status& status);

}  // namespace pd
