// Puts the claims of docs/unproven.md to a Neural Engine, or to what stands in for one.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coreml/export/bundle.h"
#include "coreml/runtime/runtime.h"
#include "device/device.h"
#include "doctor/ane_report.h"
#include "model/rows.h"
#include "planning/calibration.h"

namespace pd {

// A prediction is right when keys and values are as close to the interpreter's as others found right prefill
// programs to be on the engine: cosine against lost directions, the ratio of their sizes against lost scales.
inline constexpr double kLeastCosine = 0.999, kMostRmsError = 0.01;
// Shorter prompts are nobody's reason to use another device.
inline constexpr int kLeastPrompt = 64;
// Decode that loses more than a fifth of its speed while prompts are read was not freed from much.
inline constexpr double kMostSlowdown = 1.25;
// Of the chip's memory bandwidth, by decode of one text on the GPU.
inline constexpr double kLeastBandwidthShare = 0.5;
// Compiling and loading a function takes minutes at most.
inline constexpr double kMostFirstStartMs = 10 * 60e3;

struct AneSubject {
  const ModelSpec* spec = nullptr;
  const Bundle* bundle = nullptr;
  std::string stand_in;       // what runs it, when that is no Neural Engine
  bool metal = false;         // decode is a GPU of Apple's
  double bandwidth = 0;       // of the chip's memory as published, bytes a second; 0: unknown
  std::vector<TokenId> text;  // to read: some hundred tokens or more
  // The same bundle on our interpreter: for goldens that are not there yet.
  std::function<std::unique_ptr<PrefillDevice>()> reference;
  std::filesystem::path goldens;  // where they are kept
  // What the runtime knows by now; nullopt when none is in use.
  std::function<std::optional<RuntimeReport>()> runtime;
  std::string version, machine, os_build;
};

// Which part of an examination is how far.
struct AneProgress {
  const char* part;  // "goldens", "numerics", "speed"
  int done = 0, total = 0;
};

// `devices`: what runs the bundle, and the device that its keys and values go to. `progress` may throw, which
// ends the examination. Takes minutes; the first time on a machine as long as it takes to compile. What a
// device throws refutes a check or leaves it open; only kCancelled passes.
AneReport Examine(const AneSubject& subject, CalibrationDevices devices,
                  const std::function<void(const AneProgress&)>& progress);

}  // namespace pd
