// RAPL, the energy counters of x86 processors, as Linux exposes them.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "power/meter_kinds.h"

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

// The packages of the processor, each with a counter of microjoules that wraps at its range. They are read
// together, since threads run on any of them.
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

  std::optional<EnergyReading> Read() override {
    const auto now = std::chrono::steady_clock::now();
    double microjoules = 0;
    for (Package& package : packages_) {
      const std::optional<double> count = ReadNumber(package.file);
      if (!count) return std::nullopt;
      if (package.last && *count < *package.last) package.before += package.range;
      package.last = count;
      microjoules += package.before + *count;
    }
    return EnergyReading{microjoules / 1e6, now};
  }

 private:
  struct Package {
    fs::path file;
    double range = 0, before = 0;  // microjoules; before: of full ranges
    std::optional<double> last = {};
  };
  std::vector<Package> packages_;
};

}  // namespace

// The zones of whole packages ("intel-rapl:0", named "package-0") that can be read: since 2020 the kernel
// lets only root read the counters.
PowerMeters OpenRapl(const std::string& powercap) {
  std::vector<fs::path> packages;
  std::error_code error;
  for (const auto& zone : fs::directory_iterator(powercap, error))
    if (ReadWord(zone.path() / "name").starts_with("package-") && ReadNumber(zone.path() / "energy_uj"))
      packages.push_back(zone.path());
  if (packages.empty()) return {};
  std::ranges::sort(packages);
  return {std::make_shared<Rapl>(packages)};
}

}  // namespace pd
