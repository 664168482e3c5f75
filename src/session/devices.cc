#include "session/devices.h"

#include <algorithm>

#include "session/bundles.h"

namespace pd {

bool DividesCores(const DeviceSettings& settings) {
  return settings.prefill_threads + settings.decode_threads > 0;
}

void CheckDevices(const DeviceSettings& settings) {
  if (settings.prefill != kAuto) CheckPrefillDeviceName(settings.prefill);
  CheckDeviceName(settings.decode);
}

OpenOptions ToOpenOptions(const DeviceSettings& settings, ModelSource& model,
                          std::span<const std::string> prefill) {
  OpenOptions open;
  open.threads = settings.threads;
  open.prefill_threads = settings.prefill_threads;
  open.decode_threads = settings.decode_threads;
  open.quantise_bits = settings.quantise_bits;
  if (settings.cache) open.runtime.compiled = *settings.cache / "compiled";
  open.runtime.trial_arguments = settings.trial_arguments;
  for (const std::string& name : prefill) {
    const BackendInfo* backend = FindBackend(name);
    if (!backend || !backend->needs_bundle) continue;
    open.bundle = RequireBundle(settings.bundle, settings.cache, model);
  }
  return open;
}

const std::string& BundleDevice() {
  return std::ranges::find(Backends(), true, &BackendInfo::needs_bundle)->name;
}

}  // namespace pd
