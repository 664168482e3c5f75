// Which devices read prompts: those that were named, or what `calibrate` found.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine.h"
#include "engine/cost_model.h"

namespace pd::cli {

inline constexpr const char* kAuto = "auto";  // --prefill's default

// What `calibrate` measures and `auto` may choose from, with these flags: every device of this build that
// reads prompts, but for the decode device's own kind, unless it has processors of its own, and for coreml,
// unless the model was exported.
std::vector<std::string> PrefillCandidates(const EngineFlags& flags, ModelSource& model);

// Where a profile of this model on this machine with these devices, threads and quantisation is kept. Reads
// the model's weights for their digest. Throws kNotFound without a cache folder.
std::filesystem::path ProfilePath(const EngineFlags& flags, ModelSource& model);

// The processor, and how the flags divide it, in words.
std::string MachineName(const EngineFlags& flags);

struct PrefillSetup {
  std::vector<std::string> names;  // to be opened, in the order of units; may be empty
  std::function<PrefillChoice(const PrefillQuestion&)> choose;
  std::vector<PrefillCost> costs = {};  // of each that was measured, in the same order; or none
};
// Without a profile `auto` means the device that --decode names, in a session of its own (and coreml when
// --ane names a bundle); where there are PrefillCandidates, every choice says so. Nothing is measured here.
// Throws kCorruptFile for a profile that cannot be read.
PrefillSetup SetUpPrefill(const EngineFlags& flags, ModelSource& model);

}  // namespace pd::cli
