// Timing devices: what `bench` prints and `calibrate` keeps.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/cost_model.h"

namespace pd {

// Milliseconds of several runs, after one that is not counted.
struct Timing {
  double median_ms = 0, least_ms = 0, most_ms = 0;
};
// `run` returns the milliseconds of the part that counts.
Timing TimeRuns(int runs, const std::function<double()>& run);

// Calls f on a thread that is bound as the device's lane is, and passes on what it throws.
void OnLane(const DeviceInfo& device, const std::function<void()>& f);

// Chunks of `count` tokens after `history` tokens, keys and values only. The device is the caller's thread's.
Timing TimePrompt(DecodeDevice& device, int vocab, int history, int count, int runs);
Timing TimePrefill(PrefillDevice& device, int vocab, int history, int count, int runs);
// Steps of `rows` sequences with `context` tokens each.
Timing TimeStep(DecodeDevice& device, int vocab, int rows, int context, int runs);
// Imports of `count` tokens that the unit computed.
Timing TimeImport(DecodeDevice& device, const KvSegment& segment, int runs);

struct CalibrationProgress {
  std::function<void(int done, int total)> show = {};  // may throw to end it
};

// Measures prefill by length and history, decode by batch and context, handoff, and what a decode step loses
// while the unit prefills. Takes well under a minute for a model of a few hundred million parameters.
MachineCosts Calibrate(PrefillDevice& unit, DecodeDevice& decode, const ModelSpec& spec,
                       const CalibrationProgress& progress);

}  // namespace pd
