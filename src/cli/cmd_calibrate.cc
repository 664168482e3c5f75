#include <filesystem>
#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "session/calibrate.h"

namespace pd::cli {
namespace {

struct Options {
  std::string model;
  EngineFlags engine;
  bool json = false, quiet = false;
};

std::string ToTable(const MachineCosts& costs) {
  std::string text = fmt::format("{}\n{:<22}", costs.machine, "prompt of");
  constexpr int kShown[] = {16, 64, 256, 512, 2048};
  for (const int tokens : kShown) text += fmt::format("{:>11}", Grouped(tokens));
  text += "   handoff of 512   decode beside it\n";
  const auto row = [&](const PrefillCost& cost, const std::string& name) {
    text += fmt::format("{:<22}", name);
    for (const int tokens : kShown) text += fmt::format("{:>8.1f} ms", cost.PromptMs(0, tokens, 512));
    if (&cost == &costs.direct) {
      text += "\n";
      return;
    }
    text += fmt::format("{:>14.2f} ms", cost.HandoffMs(512));
    text += cost.own_lane() ? fmt::format("{:>17.0f} %\n", 100 / cost.slowdown) : "       waits for it\n";
  };
  for (const PrefillCost& unit : costs.units) row(unit, unit.device);
  row(costs.direct, costs.direct.device + ", which decodes");
  text += fmt::format("{:<22}", "decode step of");
  for (const auto& [rows, ms] : costs.decode.step)
    text += fmt::format("  {} row{}: {:.1f} ms", rows, rows == 1 ? "" : "s", ms);
  return text + "\n";
}

int RunCalibration(const Options& options) {
  CheckEngineFlags(options.engine);
  const Interrupt interrupt;
  const std::filesystem::path cache = RequireCacheFolder("profiles");
  ModelSource model = OpenModel(ModelPath(options.model));
  ProgressBar bar("calibrating", !options.quiet);
  const Calibration calibration =
      CalibrateMachine(model, ToSettings(options.engine), cache, [&](int done, int total) {
        interrupt.Check();
        if (total > 0) bar.Show(size_t(done), size_t(total));
      });
  const std::string text =
      options.json ? ToLine({{"profile", calibration.profile.string()},
                             {"seconds", calibration.seconds},
                             {"costs", ToJson(calibration.costs)}})
                   : ToTable(calibration.costs) + fmt::format("{:.0f} s; kept in {}\n", calibration.seconds,
                                                              calibration.profile.string());
  return WriteOutput(text) ? kOk : kOutputClosed;
}

}  // namespace

void AddCalibrate(const Command& program) {
  const Command command =
      program.Add("calibrate", "Measure this machine on a model, for --prefill auto and simulate");
  auto options = std::make_shared<Options>();
  AddModel(command, options->model);
  AddDeviceFlags(command, options->engine);
  AddJson(command, options->json);
  AddQuiet(command, options->quiet, "no progress bar");
  command.Footer(
      "Measures every device that can read prompts beside the one that --decode names, with these flags; "
      "'run' and 'batch'\n"
      "with the same flags find the profile. Takes less than a minute for a small model; let nothing else "
      "run.");
  command.Runs([options] { return RunCalibration(*options); });
}

}  // namespace pd::cli
