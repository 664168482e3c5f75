#include <chrono>
#include <filesystem>
#include <memory>

#include "base/files.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/prefill_setup.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "engine/measure.h"
#include "open/memory.h"

namespace pd::cli {
namespace {

struct Options {
  std::string model;
  EngineFlags engine;
  bool json = false, quiet = false;
};

constexpr int kTokens = 8192;  // that the longest measurement holds at a time, with room to spare

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
  ModelSource model = OpenModel(ModelPath(options.model));
  const auto check_memory = [&](const std::vector<std::string>& names) {
    CheckMemory(model, names, std::min(kTokens, model.spec.max_context), AvailableMemory(),
                options.engine.quantise_bits);
  };
  check_memory({options.engine.decode});  // first: finding exported models and profiles reads all weights
  const auto path = ProfilePath(options.engine, model);
  const auto candidates = PrefillCandidates(options.engine, model);
  std::vector<std::string> names = candidates;
  names.push_back(options.engine.decode);
  check_memory(names);

  const auto start = std::chrono::steady_clock::now();
  ProgressBar bar("calibrating", !options.quiet);
  OpenOptions open = ToOpenOptions(options.engine, model, candidates);
  open.batches = {1, 2, 4, 8, 16, 32};
  open.progress = [&](size_t, size_t) { interrupt.Check(); };
  Devices opened = OpenDevices(model, candidates, options.engine.decode, open);
  MachineCosts costs = Calibrate({std::move(opened.prefill), std::move(opened.decode), opened.leave_thread},
                                 model.spec, {[&](int done, int total) {
                                   interrupt.Check();
                                   bar.Show(size_t(done), size_t(total));
                                 }});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  costs.machine = MachineName(options.engine);
  costs.model = model.path.filename().string();
  for (size_t i = 0; i < candidates.size(); ++i) costs.units[i].option = candidates[i];

  std::filesystem::create_directories(path.parent_path());
  const Json json = ToJson(costs);
  WriteFileAtomically(path, json.dump(1) + "\n");
  if (options.json)
    return WriteOutput(ToLine({{"profile", path.string()}, {"seconds", seconds}, {"costs", json}}))
               ? kOk
               : kOutputClosed;
  return WriteOutput(ToTable(costs) + fmt::format("{:.0f} s; kept in {}\n", seconds, path.string()))
             ? kOk
             : kOutputClosed;
}

}  // namespace

void AddCalibrate(CLI::App& program, Action& action) {
  CLI::App* command =
      program.add_subcommand("calibrate", "Measure this machine on a model, for --prefill auto and simulate");
  auto options = std::make_shared<Options>();
  AddModel(*command, options->model);
  AddDeviceFlags(*command, options->engine);
  command->add_flag("--json", options->json, "one JSON object");
  command->add_flag("-q,--quiet", options->quiet, "no progress bar");
  command->footer(
      "Measures every device that can read prompts beside the one that --decode names, with these flags; "
      "'run' "
      "and 'batch'\n"
      "with the same flags find the profile. Takes less than a minute for a small model; let nothing else "
      "run.");
  command->callback([&action, options] { action = [options] { return RunCalibration(*options); }; });
}

}  // namespace pd::cli
