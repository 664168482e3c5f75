#include "cli/bench_devices.h"
#include "cli/commands.h"

namespace pd::cli {

void AddBench(const Command& program) {
  const Command bench = program.Add("bench", "Measure devices, and check tables of measurements");
  const auto options = AddBenchDevices(bench);
  AddBenchCheck(bench);
  AddBenchOverlap(bench);
  AddBenchPlanner(bench);
  bench.Footer(
      "Prompts and decode steps of each device, on its own, with made-up tokens. Peak: what the device does "
      "at most, measured\n"
      "by large products; memory: what this machine reads from a working set of the weights' size. A row "
      "above the peak, or a\n"
      "quarter above the memory, is refused.");
  bench.Runs([options] { return BenchDevices(*options); });
}

}  // namespace pd::cli
