// The energy counters of NVIDIA's GPUs.
#include <dlfcn.h>

#include "power/meter_kinds.h"

namespace pd {
namespace {

// NVIDIA's management library through its stable C interface: nvmlReturn_t is an int, 0 for success; a device
// is a pointer.
class Nvml {
 public:
  static std::shared_ptr<Nvml> Open() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    auto nvml = std::shared_ptr<Nvml>(new Nvml(library));
    const auto init = nvml->Find<int (*)()>("nvmlInit_v2");
    nvml->energy_ = nvml->Find<int (*)(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    if (!init || !nvml->energy_ || init() != 0) return nullptr;
    nvml->shutdown_ = nvml->Find<int (*)()>("nvmlShutdown");
    return nvml;
  }
  ~Nvml() {
    if (shutdown_) shutdown_();
    dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<void*> Devices() const {
    const auto count = Find<int (*)(unsigned*)>("nvmlDeviceGetCount_v2");
    const auto handle = Find<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    std::vector<void*> devices;
    unsigned n = 0;
    if (!count || !handle || count(&n) != 0) return devices;
    for (unsigned i = 0; i < n; ++i) {
      void* device = nullptr;
      if (handle(i, &device) != 0) return {};
      devices.push_back(device);
    }
    return devices;
  }

  // Since the driver was loaded.
  std::optional<double> Millijoules(void* device) const {
    unsigned long long value = 0;
    return energy_(device, &value) == 0 ? std::optional(double(value)) : std::nullopt;
  }

 private:
  explicit Nvml(void* library) : library_(library) {}
  template <class F>
  F Find(const char* name) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }

  void* library_;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  int (*shutdown_)() = nullptr;
};

class NvmlMeter final : public PowerMeter {
 public:
  NvmlMeter(std::shared_ptr<Nvml> nvml, void* device, int index)
      : nvml_(std::move(nvml)), device_(device), index_(index) {}
  PhysicalDevice Device() const override { return {PhysicalDevice::Kind::kGpu, index_, {}}; }
  std::string Source() const override { return "NVML, GPU " + std::to_string(index_); }
  std::optional<EnergyReading> Read() override {
    const auto now = std::chrono::steady_clock::now();
    const auto millijoules = nvml_->Millijoules(device_);
    return millijoules ? std::optional(EnergyReading{*millijoules / 1e3, now}) : std::nullopt;
  }

 private:
  std::shared_ptr<Nvml> nvml_;
  void* device_;
  int index_;
};

}  // namespace

PowerMeters OpenNvml() {
  PowerMeters meters;
  if (const auto nvml = Nvml::Open()) {
    const std::vector<void*> devices = nvml->Devices();
    for (size_t i = 0; i < devices.size(); ++i)
      if (nvml->Millijoules(devices[i]))  // boards older than Volta have no counter
        meters.push_back(std::make_shared<NvmlMeter>(nvml, devices[i], int(i)));
  }
  return meters;
}

}  // namespace pd
