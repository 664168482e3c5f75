#include "cli/bench.h"
#include "cli/bench_devices.h"

namespace pd::cli {

void AddBench(CLI::App& program, Action& action) {
  CLI::App* bench = program.add_subcommand("bench", "Measure devices, and check tables of measurements");
  bench->require_subcommand(0, 1);
  const auto options = AddBenchDevices(*bench);
  AddBenchCheck(*bench, action);
  AddBenchOverlap(*bench, action);
  AddBenchPlanner(*bench, action);
  bench->footer(
      "Prompts and decode steps of each device, on its own, with made-up tokens. Peak: what the device does "
      "at "
      "most, measured\n"
      "by large products; memory: what this machine reads from a working set of the weights' size. A row "
      "above "
      "either is refused.");
  // Also called after one of its own commands.
  bench->callback([&action, bench, options] {
    if (bench->get_subcommands().empty()) action = [options] { return BenchDevices(*options); };
  });
}

}  // namespace pd::cli
