#include "open/bundle_runtime.h"

#include <utility>
#include <vector>

namespace pd {
namespace {

constexpr double kMostTrialSeconds = 3 * 3600;  // large functions were seen to take more than an hour

}  // namespace

RuntimeOptions ToRuntimeOptions(const BundleRuntime& runtime, std::function<void(const std::string&)> note) {
  RuntimeOptions options;
  options.cache_folder = runtime.compiled;
  const std::filesystem::path self =
      runtime.trial_arguments.empty() ? std::filesystem::path() : OwnExecutable();
  if (!self.empty()) {
    std::vector<std::string> command = {self.string()};
    command.insert(command.end(), runtime.trial_arguments.begin(), runtime.trial_arguments.end());
    options.trial = TrialByProcess(std::move(command), kMostTrialSeconds);
  }
  options.cancelled = runtime.cancelled;
  options.note = std::move(note);
  return options;
}

}  // namespace pd
