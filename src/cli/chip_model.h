// What `plan` and `simulate` are about: a chip or a measured machine, and a model or its shape.
#pragma once
#include <string>

#include "cli/command.h"
#include "planning/cost_model.h"
#include "planning/profile.h"

namespace pd::cli {

struct ChipModel {
  std::string chip, model = "qwen3-0.6b";
  float bits = 4.5f;
};

// Adds --model and --bits.
void AddChipModel(const Command& command, ChipModel& options);

// A known shape's, or that of a model file.
ModelSpec SpecOf(const ChipModel& options);

// Of a published chip by name, or a file that `calibrate` wrote, whose model is then its own. Throws
// kNotFound.
MachineCosts CostsOf(const ChipModel& options);

}  // namespace pd::cli
