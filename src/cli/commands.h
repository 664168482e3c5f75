// The commands: each adds itself to the program.
#pragma once
#include <string>

#include "cli/command.h"

namespace pd::cli {

void AddRun(const Command& program);
void AddBatch(const Command& program);
void AddExport(const Command& program);
void AddInspect(const Command& program);
void AddTokenize(const Command& program);
void AddLogits(const Command& program);
void AddPlan(const Command& program);
void AddSimulate(const Command& program);
void AddCalibrate(const Command& program);
void AddBench(const Command& program);
void AddBenchCheck(const Command& bench);
void AddBenchOverlap(const Command& bench);
void AddBenchPlanner(const Command& bench);
void AddDoctor(const Command& program);
void AddVersion(const Command& program);
// Hidden: this program starts itself with it to try a function of a bundle.
inline constexpr const char* kTrialCommand = "bundle-trial";
void AddTrial(const Command& program);

}  // namespace pd::cli
