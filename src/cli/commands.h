// The commands. Each adds itself to the program; parsing a command line that names it sets `action`.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace pd::cli {

using Action = std::function<int()>;  // returns the exit code

void AddRun(CLI::App& program, Action& action);
void AddBatch(CLI::App& program, Action& action);
void AddExport(CLI::App& program, Action& action);
void AddInspect(CLI::App& program, Action& action);
void AddTokenize(CLI::App& program, Action& action);
void AddLogits(CLI::App& program, Action& action);
void AddPlan(CLI::App& program, Action& action);
void AddSimulate(CLI::App& program, Action& action);
void AddCalibrate(CLI::App& program, Action& action);
void AddBench(CLI::App& program, Action& action);
void AddDoctor(CLI::App& program, Action& action);
void AddVersion(CLI::App& program, Action& action);
void AddAneTrial(CLI::App& program, Action& action);  // hidden: this program starts itself with it

// Adds -m,--model.
void AddModel(CLI::App& command, std::string& model);

}  // namespace pd::cli
