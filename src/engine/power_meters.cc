// Meters of Linux and of NVIDIA's library. Elsewhere there are no files and no library, and so no meters.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "engine/energy.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

std::optional<double> ReadNumber(const fs::path& file) {
  std::ifstream in(file);
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

std::string ReadWord(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

// Packages of the processor, each a counter of microjoules that begins again at its range. Together they are
// the processor: threads go where they like.
class Rapl final : public PowerMeter {
 public:
  explicit Rapl(const std::vector<fs::path>& packages) {
    for (const fs::path& folder : packages)
      packages_.push_back({folder / "energy_uj", ReadNumber(folder / "max_energy_range_uj").value_or(0)});
  }

  PhysicalDevice Device() const override { return {PhysicalDevice::Kind::kCpu, 0, {}}; }
  std::string Source() const override {
    return "RAPL, " + std::to_string(packages_.size()) + (packages_.size() == 1 ? " package" : " packages");
  }

  std::optional<double> Joules() override {
    for (Package& package : packages_) {
      const std::optional<double> now = ReadNumber(package.file);
      if (!now) return std::nullopt;
      if (package.last && *now < *package.last) package.before += package.range;
      package.last = now;
    }
    double microjoules = 0;
    for (const Package& package : packages_) microjoules += package.before + *package.last;
    return microjoules / 1e6;
  }

 private:
  struct Package {
    fs::path file;
    double range = 0, before = 0;  // microjoules; before: of full ranges
    std::optional<double> last = {};
  };
  std::vector<Package> packages_;
};

// The zones that are whole packages ("intel-rapl:0", its name "package-0"), and readable: since 2020 the
// kernel shows counters to root only.
std::shared_ptr<PowerMeter> OpenRapl(const std::string& powercap) {
  std::vector<fs::path> packages;
  std::error_code error;
  for (const auto& zone : fs::directory_iterator(powercap, error))
    if (ReadWord(zone.path() / "name").starts_with("package-") && ReadNumber(zone.path() / "energy_uj"))
      packages.push_back(zone.path());
  if (packages.empty()) return nullptr;
  std::ranges::sort(packages);
  return std::make_shared<Rapl>(packages);
}

// NVIDIA's management library, by its stable C interface: nvmlReturn_t is an int of which 0 is success, a
// device is a pointer.
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
  std::optional<double> Joules() override {
    const auto millijoules = nvml_->Millijoules(device_);
    return millijoules ? std::optional(*millijoules / 1e3) : std::nullopt;
  }

 private:
  std::shared_ptr<Nvml> nvml_;
  void* device_;
  int index_;
};

}  // namespace

std::vector<std::shared_ptr<PowerMeter>> OpenPowerMeters(const std::string& powercap) {
  std::vector<std::shared_ptr<PowerMeter>> meters;
  if (auto rapl = OpenRapl(powercap)) meters.push_back(std::move(rapl));
  if (const auto nvml = Nvml::Open()) {
    const std::vector<void*> devices = nvml->Devices();
    for (size_t i = 0; i < devices.size(); ++i)
      if (nvml->Millijoules(devices[i]))  // boards before Volta do not count
        meters.push_back(std::make_shared<NvmlMeter>(nvml, devices[i], int(i)));
  }
  return meters;
}

}  // namespace pd
