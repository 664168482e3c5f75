// The meaning of the "Energy Model" channels of Apple's chips: names, units and counts as IOReport gives
// them. Nothing here calls IOReport. Apple documents none of it; names and behaviour follow the published
// listings in tests/power/energy_channels_test.cc.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "power/power_meter.h"

namespace pd {

// Indices of the channels that add up to the device; empty when it has no known channel. Chips have a channel
// for the whole device, or one per die, and hundreds for its parts, which would be counted twice.
std::vector<size_t> ChannelsOf(PhysicalDevice::Kind device, std::span<const std::string> names);

// Joules of one count; nullopt when it is no unit of energy.
std::optional<double> JoulesOf(std::string_view unit);

struct ChannelCount {
  int64_t count = 0;
  uint64_t stamp = 0;  // when the driver wrote it, in ticks; 0: unknown
};

// The same moment on the clock of the stamps and on ours.
struct ClockPair {
  uint64_t ticks = 0;
  double seconds_per_tick = 0;
  std::chrono::steady_clock::time_point now;
};

// Adds up the counts of a meter's channels. A count below the last one means that the counter started again.
class ChannelSum {
 public:
  explicit ChannelSum(std::span<const double> joules_per_count);
  // `counts`: one per channel. `clocks`: the time after they were read.
  EnergyReading Add(std::span<const ChannelCount> counts, const ClockPair& clocks);

 private:
  struct Channel {
    double joules_per_count = 0;
    std::optional<int64_t> last = {};
  };
  std::vector<Channel> channels_;
  uint64_t stamp_ = 0;  // the oldest stamp of all channels
  EnergyReading reading_;
};

}  // namespace pd
