// Measures this machine on a model, once, for kAuto.
#pragma once
#include <filesystem>
#include <functional>

#include "planning/cost_model.h"
#include "session/devices.h"

namespace pd {

struct Calibration {
  std::filesystem::path profile;  // the file that OpenEngine finds with the same settings
  MachineCosts costs;
  double seconds = 0;
};

// Measures every device that could read prompts beside settings.decode and writes the profile below `cache`;
// settings.prefill does not matter. Takes a minute for a small model. `progress` is called on this thread;
// what it throws ends the measurement, and so do kOutOfMemory, kDevice and what opening throws. `total` is 0
// while devices are opened.
Calibration CalibrateMachine(ModelSource& model, const DeviceSettings& settings,
                             const std::filesystem::path& cache,
                             const std::function<void(int done, int total)>& progress);

}  // namespace pd
