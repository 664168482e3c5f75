// Energy counters, and those that this machine has.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"

namespace pd {

// The state of a counter. Counters move in steps: some every millisecond, some every two seconds.
struct EnergyReading {
  double joules = 0;  // since an arbitrary start; never decreases
  // The end of the time that `joules` covers. A time after Read() means the time of Read().
  std::chrono::steady_clock::time_point until;
};

// Counts the energy that one physical device takes. Not thread-safe.
class PowerMeter {
 public:
  virtual ~PowerMeter() = default;
  // The device that it counts, by kind and index; cores do not matter.
  virtual PhysicalDevice Device() const = 0;
  virtual std::string Source() const = 0;  // "RAPL, 1 package"
  // nullopt when it cannot be read now. May take milliseconds.
  virtual std::optional<EnergyReading> Read() = 0;
};

// The meters of this machine that can be read; may be empty. Linux: RAPL for the processor, read from the
// kernel's folder `powercap`, and NVIDIA's library for its GPUs. macOS: IOReport for all three kinds of
// device.
std::vector<std::shared_ptr<PowerMeter>> OpenPowerMeters(const std::string& powercap = "/sys/class/powercap");

}  // namespace pd
