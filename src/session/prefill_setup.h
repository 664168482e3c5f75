// Which devices read prompts: the one that was named, or what CalibrateMachine found.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "planning/cost_model.h"
#include "serving/scheduler.h"
#include "session/devices.h"

namespace pd {

// What CalibrateMachine measures and kAuto chooses from: the useful devices that read prompts; without the
// decode device's own kind, unless that has processors of its own for it; and without the one that runs
// bundles when there is no bundle.
std::vector<std::string> PrefillCandidates(const DeviceSettings& settings, ModelSource& model);

// Where the profile of this model on this machine with these settings is kept. Reads all weights.
std::filesystem::path ProfilePath(const std::filesystem::path& cache, const DeviceSettings& settings,
                                  ModelSource& model);

// The processor, and how the settings divide it, in words.
std::string MachineName(const DeviceSettings& settings);

struct PrefillSetup {
  // To be opened, in the order of units. Empty when the device that decodes reads prompts as well: they go
  // straight into its memory.
  std::vector<std::string> names;
  std::function<PrefillChoice(const PrefillQuestion&)> choose = {};
  std::vector<PrefillCost> costs = {};  // of each name when they were measured, in the same order; or empty
};
// Measures nothing. Without a profile kAuto means the device that decodes, or the one that runs bundles when
// a bundle is named; if there are other candidates, every choice says that they were not compared. Throws
// kCorruptFile for a profile that cannot be read.
PrefillSetup SetUpPrefill(const DeviceSettings& settings, ModelSource& model);

}  // namespace pd
