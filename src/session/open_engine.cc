#include "session/open_engine.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "open/memory.h"
#include "planning/cost_model.h"
#include "power/power_meter.h"
#include "session/prefill_setup.h"

namespace pd {
namespace {

// Bytes for keys and values: three quarters of what is left, of the processor's memory or of a device's own,
// whichever is less. The rest is for whatever else runs.
size_t RoomForKv(std::span<const std::string> devices, const EngineSettings& settings, ModelSource& model) {
  const size_t available = AvailableMemory();
  size_t room = available - std::min(available, settings.prefix_cache_bytes);
  for (const std::string& device : devices) {
    const MemoryNeed need = EstimateMemory(model, device, settings.devices.quantise_bits);
    if (!need.own_memory) continue;
    room = std::min(room, *need.own_memory - std::min(*need.own_memory, need.weights + need.activations));
  }
  return room / 4 * 3;
}

}  // namespace

std::unique_ptr<Engine> OpenEngine(ModelSource& model, const EngineSettings& settings,
                                   const EngineHooks& hooks) {
  const DeviceSettings& devices = settings.devices;
  CheckDevices(devices);
  const auto check_memory = [&](const std::vector<std::string>& names) {
    CheckMemory(model, names, settings.tokens, AvailableMemory(), devices.quantise_bits);
  };
  check_memory({devices.decode});  // first: finding a profile or a bundle reads all weights
  const PrefillSetup prefill = SetUpPrefill(devices, model);
  std::vector<std::string> names = prefill.names;
  names.push_back(devices.decode);
  check_memory(names);

  OpenOptions open = ToOpenOptions(devices, model, prefill.names);
  open.cancelled = open.runtime.cancelled = hooks.cancelled;
  open.note = hooks.note;
  open.progress = hooks.progress;
  Devices opened = OpenDevices(model, prefill.names, devices.decode, open);
  for (size_t i = 0; i < prefill.costs.size(); ++i) UseMeasuredCalls(*opened.prefill[i], prefill.costs[i]);

  EngineOptions options;
  options.choose = prefill.choose;
  options.meters = OpenPowerMeters();
  options.max_running = settings.max_running;
  options.max_queued = settings.max_queued;
  options.prefix_cache_bytes = settings.prefix_cache_bytes;
  options.disk_cache = settings.prefix_folder;
  options.disk_cache_bytes = settings.prefix_disk_bytes;
  options.warn = hooks.warn;
  options.leave_lane = opened.leave_thread;
  options.observe = hooks.observe;
  options.kv_limit = RoomForKv(names, settings, model);
  EngineDevices engine_devices;
  engine_devices.prefill = std::move(opened.prefill);
  engine_devices.decode = std::move(opened.decode);
  return std::make_unique<Engine>(model.spec, std::move(engine_devices), std::move(options));
}

}  // namespace pd
