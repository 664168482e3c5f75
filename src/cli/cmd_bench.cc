#include "base/error.h"
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
      "the peak, or a\n"
      "quarter above the memory, is refused.");
  // Also called after one of its own commands.
  bench->callback([&action, bench, options] {
    if (bench->get_subcommands().empty()) {
      action = [options] { return BenchDevices(*options); };
      return;
    }
    const std::string name = bench->get_subcommands().front()->get_name();
    for (const CLI::Option* option : bench->get_options())
      if (option->count() > 0)
        throw Fail(ErrorKind::kBadRequest,
                   "{}: 'bench {}' has flags of its own, after its name; see 'pd-engine bench {} --help'",
                   option->get_name(), name, name);
  });
}

}  // namespace pd::cli
