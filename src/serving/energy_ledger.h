// Divides the energy that meters count among requests.
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

#include "power/power_meter.h"
#include "serving/job.h"

namespace pd {

// Between two events a meter's joules are divided evenly among the lanes on its device that run a job, and
// those of a decode step evenly among its rows. What an idle device takes belongs to no request. Where one
// step of a counter spans several events, its joules are divided by time among the jobs that ran.
//
// Unknown (nullopt) is not zero. A counter that stands still has not counted: it may be late, or dead, as
// some of Apple's are; no device computes without energy. A phase has joules when nine tenths of its time
// were counted; the rest is extrapolated. A counter step longer than three seconds, less than nine tenths of
// it work, is not used.
//
// Reading a meter costs milliseconds, so it is read rarely: reading takes at most a tenth of the time of
// prefill and handoff, and a fiftieth of the time of decode. Not thread-safe.
class EnergyLedger {
 public:
  using Time = std::chrono::steady_clock::time_point;

  EnergyLedger() = default;
  // `lanes`: the physical device of each lane. `now`: the clock; tests pass their own.
  EnergyLedger(std::vector<std::shared_ptr<PowerMeter>> meters, const std::vector<PhysicalDevice>& lanes,
               std::function<Time()> now = std::chrono::steady_clock::now);

  void Begin(size_t lane, const Job& job);
  void End(size_t lane, bool failed);
  // Writes the joules of a request into its statistics, for each phase where they are known, and forgets the
  // request. A phase that did not happen took 0 J.
  void Take(RequestId request, RequestStats& stats);

 private:
  enum class Phase : uint8_t { kPrefill, kHandoff, kDecode };
  using Owner = std::pair<RequestId, Phase>;
  using Owners = std::vector<Owner>;  // one entry per row
  struct Lane {
    std::optional<size_t> meter;
    Owners owners;                           // of what the lane does now
    std::deque<Owners> steps;                // uncollected: a device that runs ahead still computes them
    bool submits = false, collects = false;  // the running job
    bool long_job = false;                   // prefill or handoff
  };
  struct Sums {                                   // of a phase
    double joules = 0, seconds = 0, counted = 0;  // counted: the seconds that `joules` covers
    bool unmetered = false;                       // part of it ran on a device without a meter
  };
  struct Meter {
    std::shared_ptr<PowerMeter> meter;
    std::optional<double> joules;  // of the counter, at its last step
    Time counted, seen, asked;  // counted: the time of that step; seen: the end of `shares`; asked: last read
    Time::duration answer_took{};    // of the last read
    std::map<Owner, double> shares;  // seconds of work since `counted`
    double busy = 0;                 // their sum, with those of requests that have ended
  };

  void Read(const Lane& lane);
  void Read(size_t meter, int pause);
  void Pass(size_t meter, Time until);
  void Count(size_t meter, const EnergyReading& reading, Time until);
  static Owners OwnersOf(const Job& job);

  std::vector<Meter> meters_;
  std::vector<Lane> lanes_;
  std::map<RequestId, std::array<Sums, 3>> sums_;  // by Phase
  std::function<Time()> now_;
};

}  // namespace pd
