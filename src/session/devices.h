// Which devices a model runs on, and where their files are.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/model_source.h"
#include "open/open.h"

namespace pd {

inline constexpr const char* kAuto = "auto";

struct DeviceSettings {
  // What reads prompts: a device's name, or kAuto: for each prompt the best of those that CalibrateMachine
  // measured; if it measured none, the device that decodes, or the one that runs `bundle`.
  std::string prefill = kAuto;
  std::string decode = kDefaultDevice;
  std::filesystem::path bundle = {};  // empty: the model's own in `cache`
  int quantise_bits = 0;              // these four: as in OpenOptions
  int threads = 0, prefill_threads = 0, decode_threads = 0;
  // Where bundles, profiles and compiled programs are kept; nullopt: nowhere.
  std::optional<std::filesystem::path> cache = {};
  std::vector<std::string> trial_arguments = {};  // as in BundleRuntime
};

// Whether prefill and decode have processors of their own.
bool DividesCores(const DeviceSettings& settings);

// Throws kBadRequest or kUnsupported for a name that cannot do what it is asked for. Reads no file.
void CheckDevices(const DeviceSettings& settings);

// How to open a model on these devices; the callbacks are empty. When one of `prefill` runs a bundle: with
// that bundle; throws kNotFound when there is none. May read all weights (FindBundle).
OpenOptions ToOpenOptions(const DeviceSettings& settings, ModelSource& model,
                          std::span<const std::string> prefill);

// The name of the device that runs bundles.
const std::string& BundleDevice();

}  // namespace pd
