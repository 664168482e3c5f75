#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/terminal.h"
#include "open/open.h"

namespace pd::cli {

void AddVersion(const Command& program) {
  program.Add("version", "Print the version and the devices of this build").Runs([] {
    const auto text =
        fmt::format("pd-engine {} (devices: {})\n", PD_VERSION, fmt::join(PrefillDeviceNames(), ", "));
    return WriteOutput(text) ? kOk : kOutputClosed;
  });
}

}  // namespace pd::cli
