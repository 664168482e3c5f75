// Joules: what meters say, and whose they were.
#pragma once
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/job.h"

namespace pd {

// What a meter has counted. Counters move in steps, some every millisecond, some every other second.
struct EnergyReading {
  double joules = 0;  // since some beginning, never less than before
  // What they cover; a time after the question stands for the question's.
  std::chrono::steady_clock::time_point until;
};

// A counter of the energy that one physical device has taken. One thread's.
class PowerMeter {
 public:
  virtual ~PowerMeter() = default;
  // Whose energy it counts: kind and, of several, index. Cores do not matter.
  virtual PhysicalDevice Device() const = 0;
  virtual std::string Source() const = 0;  // "RAPL, 1 package"
  // Nothing when it cannot be read now. May take milliseconds.
  virtual std::optional<EnergyReading> Read() = 0;
};

// Those of this machine that can be read; none is no error. Linux: RAPL through `powercap`, a folder of the
// kernel's, for the processor; NVIDIA's library for its GPUs; macOS: IOReport for all three kinds of device.
std::vector<std::shared_ptr<PowerMeter>> OpenPowerMeters(const std::string& powercap = "/sys/class/powercap");

// Divides what meters count among requests: between any two events, evenly among the lanes of the meter's
// device that run a job, and of a decode step evenly among its rows. What a device takes while no job runs is
// nobody's. Where a counter's step spans several events, its joules are divided by time among those who
// worked.
//
// Absent is not zero. A counter that stands still has not counted: it may be late, or dead as some of Apple's
// are, and no device works for nothing. A phase is told when nine tenths of its time were counted, with the
// rest taken to be like them; otherwise it has no joules. Steps of over three seconds, with less than nine
// tenths of them work, say nothing of that work.
//
// Asking costs milliseconds: a meter is asked so seldom that it takes a tenth of the time of prefill and
// handoff, a fiftieth of that of text. One thread's.
class EnergyLedger {
 public:
  using Time = std::chrono::steady_clock::time_point;

  EnergyLedger() = default;
  // `lanes`: the physical device of each; `now`: a clock for tests.
  EnergyLedger(std::vector<std::shared_ptr<PowerMeter>> meters, const std::vector<PhysicalDevice>& lanes,
               std::function<Time()> now = std::chrono::steady_clock::now);

  void Begin(size_t lane, const Job& job);
  void End(size_t lane, bool failed);
  // Writes the joules of a request into its statistics and forgets it: those of each phase that is told. A
  // phase that did not happen took 0 J.
  void Take(RequestId request, RequestStats& stats);

 private:
  enum class Phase : uint8_t { kPrefill, kHandoff, kDecode };
  using Owner = std::pair<RequestId, Phase>;
  using Owners = std::vector<Owner>;  // one entry a row
  struct Lane {
    std::optional<size_t> meter;
    Owners whose;                            // is what the lane does now
    std::deque<Owners> steps;                // uncollected: a device that runs ahead still computes them
    bool submits = false, collects = false;  // the job that runs
    bool long_job = false;                   // prefill or handoff
  };
  struct Sums {                                   // of a phase
    double joules = 0, seconds = 0, counted = 0;  // counted: seconds that `joules` covers
    bool unmetered = false;                       // some of it ran where no meter is
  };
  struct Meter {
    std::shared_ptr<PowerMeter> meter;
    std::optional<double> joules;    // at the last count
    Time counted, seen, asked;       // counted: what the last count covered; seen: up to where `shares` goes
    Time::duration answer_took{};    // to the last question
    std::map<Owner, double> shares;  // seconds of work that are not counted yet
    double busy = 0;                 // their sum, and those of requests that have ended
  };

  void Read(const Lane& lane);
  void Read(size_t meter, int pause);
  void Pass(size_t meter, Time until);
  void Count(size_t meter, const EnergyReading& reading, Time until);
  static Owners WhoseIs(const Job& job);

  std::vector<Meter> meters_;
  std::vector<Lane> lanes_;
  std::map<RequestId, std::array<Sums, 3>> sums_;  // by Phase
  std::function<Time()> now_;
};

}  // namespace pd
