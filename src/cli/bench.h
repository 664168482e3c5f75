// The parts of `bench`. Each adds itself to it as a command of its own.
#pragma once
#include "cli/commands.h"

namespace pd::cli {

void AddBenchCheck(CLI::App& bench, Action& action);
void AddBenchOverlap(CLI::App& bench, Action& action);
void AddBenchPlanner(CLI::App& bench, Action& action);

}  // namespace pd::cli
