// What the "Energy Model" channels of Apple's chips mean: names, units and counts as IOReport gives them, and
// no call to it. Apple documents none of this; names and behaviour are as the published listings of
// tests/engine/ energy_channels_test.cc show them.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "engine/energy.h"

namespace pd {

// Those of `names` that add up to the device, as indices; empty: it has no channel that we know. Chips have a
// channel for the whole, or one for each die, beside hundreds for its parts, which would count twice.
std::vector<size_t> ChannelsOf(PhysicalDevice::Kind device, std::span<const std::string> names);

// Joules of one count; nothing for what is no unit of energy.
std::optional<double> JoulesOf(std::string_view unit);

struct ChannelCount {
  int64_t count = 0;
  uint64_t stamp = 0;  // when the driver wrote it, in ticks; 0: it does not say
};

// One moment on the clock of the stamps and on ours.
struct ClockPair {
  uint64_t ticks = 0;
  double seconds_per_tick = 0;
  std::chrono::steady_clock::time_point now;
};

// Makes a meter's reading of its channels' counts. A count that is less than before begins anew.
class ChannelSum {
 public:
  explicit ChannelSum(std::span<const double> joules_per_count);
  // `counts`: one for each channel; `clocks`: after they were read.
  EnergyReading Add(std::span<const ChannelCount> counts, const ClockPair& clocks);

 private:
  struct Channel {
    double joules_per_count = 0;
    std::optional<int64_t> last = {};
  };
  std::vector<Channel> channels_;
  uint64_t stamp_ = 0;  // of the oldest
  EnergyReading reading_;
};

}  // namespace pd
