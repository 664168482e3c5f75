// Measures what a machine's devices take for a model: what `calibrate` keeps and the planner reads.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "planning/cost_model.h"

namespace pd {

struct CalibrationProgress {
  std::function<void(int done, int total)> show = {};  // may throw to end the calibration
};

// Devices of one model. They end on the threads they were measured on.
struct CalibrationDevices {
  std::vector<std::unique_ptr<PrefillDevice>> units;
  std::unique_ptr<DecodeDevice> decode;
  std::function<void()> leave = {};  // called last on each of those threads; must not throw
};

// Measures prefill by length and history on every unit and on the decode device, decode by batch and context,
// handoff, and how much a decode step slows down while a unit computes. Each device is called on the thread
// of the lane that an engine would give it. Takes well under a minute for a model of a few hundred million
// parameters; slow devices are measured at fewer lengths. `machine` and `model` of the result are left empty.
// Throws what devices and `progress` throw.
MachineCosts Calibrate(CalibrationDevices devices, const ModelSpec& spec,
                       const CalibrationProgress& progress);

}  // namespace pd
