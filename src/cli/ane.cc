#include "cli/ane.h"

#include "cli/commands.h"
#include "cli/model.h"
#include "open/open.h"

namespace pd::cli {
namespace {

constexpr const char* kTrialCommand = "ane-trial";
constexpr double kMostTrialSeconds = 3 * 3600;  // large functions were seen to take more than an hour

}  // namespace

RuntimeOptions AneRuntimeOptions(CancelCheck cancelled) {
  RuntimeOptions options;
  if (const auto cache = CacheFolder()) options.cache_folder = *cache / "compiled";
  if (const auto self = OwnExecutable(); !self.empty())
    options.trial = TrialByProcess({self.string(), kTrialCommand}, kMostTrialSeconds);
  options.cancelled = std::move(cancelled);
  return options;
}

void AddAneTrial(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand(kTrialCommand)->group("");  // in no list
  auto names = std::make_shared<std::pair<std::string, std::string>>();
  command->add_option("compiled", names->first)->required();
  command->add_option("function", names->second)->required();
  command->callback(
      [&action, names] { action = [names] { return TryCoreMlFunction(names->first, names->second); }; });
}

}  // namespace pd::cli
