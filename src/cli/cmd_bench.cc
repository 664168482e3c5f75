#include "cli/bench.h"

namespace pd::cli {

void AddBench(CLI::App& program, Action& action) {
  CLI::App* bench = program.add_subcommand("bench", "Measure devices, and check tables of measurements");
  AddBenchCheck(*bench, action);
  bench->require_subcommand(1);
}

}  // namespace pd::cli
