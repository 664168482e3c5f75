#include <memory>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "open/open.h"

namespace pd::cli {

void AddTrial(const Command& program) {
  const Command command = program.AddHidden(kTrialCommand);
  auto names = std::make_shared<std::pair<std::string, std::string>>();
  command.Text("compiled", names->first, "").Required();
  command.Text("function", names->second, "").Required();
  command.Runs([names] { return TryBundleFunction(names->first, names->second); });
}

}  // namespace pd::cli
