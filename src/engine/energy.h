// Joules: what meters say, and whose they were.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/job.h"

namespace pd {

// A counter of the energy that one physical device has taken. One thread's.
class PowerMeter {
 public:
  virtual ~PowerMeter() = default;
  // Whose energy it counts: kind and, of several, index. Cores do not matter.
  virtual PhysicalDevice Device() const = 0;
  virtual std::string Source() const = 0;  // "RAPL package-0"
  // Joules since some beginning, never less than before; nothing when it cannot be read now.
  virtual std::optional<double> Joules() = 0;
};

// Those of this machine that can be read; none is no error. Linux: RAPL through `powercap`, a folder of the
// kernel's, for the processor; NVIDIA's library for its GPUs.
std::vector<std::shared_ptr<PowerMeter>> OpenPowerMeters(const std::string& powercap = "/sys/class/powercap");

// Divides what meters count among requests: between any two events, evenly among the lanes of the meter's
// device that run a job, and of a decode step evenly among its rows. What a device takes while no job runs is
// nobody's. One thread's.
class EnergyLedger {
 public:
  EnergyLedger() = default;
  // `lanes`: the physical device of each.
  EnergyLedger(std::vector<std::shared_ptr<PowerMeter>> meters, const std::vector<PhysicalDevice>& lanes);

  void Begin(size_t lane, const Job& job);
  void End(size_t lane, bool failed);
  // Writes the joules of a request into its statistics and forgets it: those of each phase whose device has a
  // meter. A phase that did not happen took 0 J.
  void Take(RequestId request, RequestStats& stats);

 private:
  enum class Phase : uint8_t { kPrefill, kHandoff, kDecode };
  using Owners = std::vector<std::pair<RequestId, Phase>>;  // one entry a row
  struct Lane {
    std::optional<size_t> meter;
    Owners whose;                            // is what the lane does now
    std::deque<Owners> steps;                // uncollected: a device that runs ahead still computes them
    bool submits = false, collects = false;  // the job that runs
  };
  struct Sums {
    double joules[3] = {};  // by Phase
    bool unmetered[3] = {};
  };
  struct Meter {
    std::shared_ptr<PowerMeter> meter;
    std::optional<double> last;
  };

  void Read(size_t meter);
  static Owners WhoseIs(const Job& job);

  std::vector<Meter> meters_;
  std::vector<Lane> lanes_;
  std::map<RequestId, Sums> sums_;
};

}  // namespace pd
