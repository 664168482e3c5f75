// An engine for a model: devices opened, memory checked, the prefix cache set up.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "serving/engine.h"
#include "session/devices.h"

namespace pd {

struct EngineSettings {
  DeviceSettings devices = {};
  // Tokens of a usual request, prompt and text together: memory for one such sequence must be there.
  int tokens = 4096;
  int max_running = 1;            // requests that run at a time
  int max_queued = 1024;          // requests that wait for room; more end with kBusy
  size_t prefix_cache_bytes = 0;  // keys and values of earlier prompts, for those that begin alike; 0: none
  // Where they are kept over a restart, at most prefix_disk_bytes of them; empty: nowhere.
  std::filesystem::path prefix_folder = {};
  size_t prefix_disk_bytes = size_t(4) << 30;
};

// What a program wants to be told; each may be empty.
struct EngineHooks {
  // On the caller's thread; what it throws ends the loading.
  std::function<void(size_t done_bytes, size_t total_bytes)> progress = {};
  // Asked while a bundle's programs are compiled and while devices compute; true ends either with kCancelled,
  // so requests end soon, and is for good. Any thread.
  std::function<bool()> cancelled = {};
  // What the user should know of loading, a sentence at a time: on the caller's thread, later on a device's.
  std::function<void(const std::string& sentence)> note = {};
  std::function<void(const std::string& line)> warn = {};  // these two: EngineOptions, the engine's thread
  std::function<void(const Span&)> observe = {};
};

// Opens the devices and starts the engine's threads. `model` must outlive the engine. Throws kOutOfMemory
// with the numbers when devices and a sequence of settings.tokens do not fit, before anything is loaded;
// kBadRequest and kUnsupported for device names; kNotFound for a missing bundle; kCancelled; what loading
// throws. Reads no environment: that is to be set up before (DeviceEnvironment).
std::unique_ptr<Engine> OpenEngine(ModelSource& model, const EngineSettings& settings,
                                   const EngineHooks& hooks = {});

}  // namespace pd
