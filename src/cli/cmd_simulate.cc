#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "base/files.h"
#include "base/json.h"
#include "cli/chip_model.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "planning/simulator.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

struct SimulateOptions {
  ChipModel about;
  std::string trace, svg;
  int parallel = 64, chunk = 512;
  bool json = false;
};

struct Summary {
  std::vector<double> first_token_ms;  // ascending
  const Simulation* simulation = nullptr;
};

Summary Summarise(const Simulation& simulation) {
  Summary summary{{}, &simulation};
  for (const SimulatedRequest& request : simulation.requests)
    summary.first_token_ms.push_back(request.first_token_ms);
  std::ranges::sort(summary.first_token_ms);
  return summary;
}

Json ToJson(const Summary& s) {
  const auto percentiles = [](const std::vector<double>& sorted) {
    return Json{{"p50", Percentile(sorted, 50)},
                {"p95", Percentile(sorted, 95)},
                {"p99", Percentile(sorted, 99)},
                {"max", Percentile(sorted, 100)}};
  };
  Json requests = Json::array();
  for (const SimulatedRequest& r : s.simulation->requests)
    requests.push_back({{"first_token_ms", r.first_token_ms}, {"end_ms", r.end_ms}, {"device", r.device}});
  return {{"first_token_ms", percentiles(s.first_token_ms)},
          {"gap_ms", percentiles(s.simulation->gaps_ms)},
          {"tokens_per_s", s.simulation->tokens_per_s},
          {"total_ms", s.simulation->total_ms},
          {"joules", s.simulation->joules ? Json(*s.simulation->joules) : Json(nullptr)},
          {"requests", requests}};
}

std::string Row(const char* name, const Summary& s) {
  const auto& gaps = s.simulation->gaps_ms;
  return fmt::format("{:<12}{:>9.0f}{:>9.0f}{:>9.0f}  |{:>9.1f}{:>9.1f}{:>9.1f}  |{:>9.0f}{:>10}\n", name,
                     Percentile(s.first_token_ms, 50), Percentile(s.first_token_ms, 95),
                     Percentile(s.first_token_ms, 100), Percentile(gaps, 50), Percentile(gaps, 99),
                     Percentile(gaps, 100), s.simulation->tokens_per_s,
                     s.simulation->joules ? fmt::format("{:.1f} J", *s.simulation->joules) : "unknown");
}

int RunSimulation(const SimulateOptions& options) {
  if (!options.svg.empty())
    CheckOutput(options.svg, std::array<fs::path, 3>{options.about.chip, options.about.model, options.trace});
  const MachineCosts costs = CostsOf(options.about);
  const auto trace = ReadTrace(ReadTextInput(options.trace), InputName(options.trace));
  SimulationOptions simulate;
  simulate.max_running = options.parallel;
  simulate.prefill_chunk = options.chunk;
  const Simulation two = Simulate(costs, trace, simulate);
  simulate.fixed = [&](size_t) { return PrefillChoice{std::nullopt, options.chunk, {}}; };
  const Simulation one = Simulate(costs, trace, simulate);
  const Summary two_lanes = Summarise(two), one_lane = Summarise(one);
  if (!options.svg.empty() &&
      !WriteOutputFile(options.svg, TimelineSvg(two.spans, two.lanes, 0, two.total_ms)))
    return kOutputClosed;
  if (options.json) {
    const Json json = {{"machine", costs.machine},
                       {"model", costs.model},
                       {"two_lanes", ToJson(two_lanes)},
                       {"one_lane", ToJson(one_lane)}};
    return WriteOutput(ToLine(json)) ? kOk : kOutputClosed;
  }
  std::string text = fmt::format("{}, {}: {} requests, simulated; milliseconds\n\n", costs.machine,
                                 costs.model, trace.size());
  text += fmt::format("{:<12}{:^27}  |{:^27}  |{:>9}\n", "", "first token", "gap between tokens", "tok/s");
  text += fmt::format("{:<12}{:>9}{:>9}{:>9}  |{:>9}{:>9}{:>9}  |{:>9}{:>10}\n", "", "median", "p95", "max",
                      "median", "p99", "max", "in all", "energy");
  text += Row("one lane", one_lane) + Row("two lanes", two_lanes);
  int moved = 0;
  for (const SimulatedRequest& r : two.requests) moved += !r.direct;
  text += fmt::format("\nThe planner gave {} of {} prompts to the other lane.\n", moved, trace.size());
  return WriteOutput(text) ? kOk : kOutputClosed;
}

}  // namespace

void AddSimulate(const Command& program) {
  const Command command = program.Add("simulate", "Replay requests on a chip that is not here");
  auto options = std::make_shared<SimulateOptions>();
  SimulateOptions& o = *options;
  command.Text("--profile", o.about.chip, "a published chip, or a file that calibrate wrote").Required();
  AddChipModel(command, o.about);
  command
      .Text("--trace", o.trace,
            "JSON lines: {\"at_ms\": 0, \"prompt\": 900, \"output\": 100}; -: standard input")
      .Required();
  command.Integer("--parallel", o.parallel, {1, 4096}, "requests that run at a time");
  command.Integer("--prefill-chunk", o.chunk, {1, INT32_MAX}, "tokens prefilled at a time");
  command.Text("--svg", o.svg, "write a timeline of both lanes; replaces the file").ValueName("FILE");
  AddJson(command, o.json);
  command.Runs([options] { return RunSimulation(*options); });
}

}  // namespace pd::cli
