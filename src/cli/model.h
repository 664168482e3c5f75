// The model that a command works on, and where models and measurements are kept.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "planning/bandwidth.h"

namespace pd::cli {

// $PD_ENGINE_CACHE, $XDG_CACHE_HOME/pd-engine or ~/.cache/pd-engine; nullopt when no variable says
// where; the last two must be absolute.
std::optional<std::filesystem::path> CacheFolder();
// The same; throws kNotFound when there is none: "no folder for `what`: ...", with `remedy` beside the
// variables.
std::filesystem::path RequireCacheFolder(const std::string& what, const std::string& remedy = "");

// Below the cache folder: where backends keep what they compile and run.
std::filesystem::path KernelFolder(const std::filesystem::path& cache);
// Makes that folder, for this user alone, and sets the variables that backends read, unless they are set.
// Call before any device is used.
void PrepareEnvironment();

// `given`, whether it exists or not; when it is empty the default model. Throws kNotFound when that is
// absent, with the way to get it.
std::filesystem::path ModelPath(const std::string& given);

// This machine's memory rates, kept in the cache folder, or else in the current one.
BandwidthStore MachineRates();

}  // namespace pd::cli
