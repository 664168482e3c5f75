#include "power/energy_channels.h"

#include <algorithm>

#include "base/error.h"

namespace pd {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// '#' in the pattern matches one or more digits.
bool Matches(std::string_view name, std::string_view pattern) {
  for (const char c : pattern) {
    if (name.empty() || (c == '#' ? !IsDigit(name[0]) : name[0] != c)) return false;
    name.remove_prefix(1);
    while (c == '#' && !name.empty() && IsDigit(name[0])) name.remove_prefix(1);
  }
  return name.empty();
}

// The whole device first: where it exists, its parts are not added.
std::span<const std::string_view> PatternsOf(PhysicalDevice::Kind device) {
  static constexpr std::string_view kCpu[] = {"CPU Energy", "DIE_#_CPU Energy"};
  static constexpr std::string_view kGpu[] = {"GPU Energy", "GPU", "GPU#", "GPU#_#"};
  static constexpr std::string_view kEngine[] = {"ANE", "ANE#", "ANE#_#"};  // ANE0_1: of die 1
  switch (device) {
    case PhysicalDevice::Kind::kCpu:
      return kCpu;
    case PhysicalDevice::Kind::kGpu:
      return kGpu;
    case PhysicalDevice::Kind::kNeuralEngine:
      return kEngine;
  }
  PD_CHECK(false);
}

}  // namespace

std::vector<size_t> ChannelsOf(PhysicalDevice::Kind device, std::span<const std::string> names) {
  std::vector<size_t> channels;
  for (const std::string_view pattern : PatternsOf(device)) {
    for (size_t i = 0; i < names.size(); ++i)
      if (Matches(names[i], pattern)) channels.push_back(i);
    if (!channels.empty()) break;
  }
  return channels;
}

std::optional<double> JoulesOf(std::string_view unit) {
  while (unit.ends_with(' ')) unit.remove_suffix(1);
  if (unit == "J") return 1;
  if (unit == "mJ") return 1e-3;
  if (unit == "uJ" || unit == "\xC2\xB5J") return 1e-6;
  if (unit == "nJ") return 1e-9;
  return std::nullopt;
}

ChannelSum::ChannelSum(std::span<const double> joules_per_count) {
  for (const double joules : joules_per_count) channels_.push_back({joules});
}

EnergyReading ChannelSum::Add(std::span<const ChannelCount> counts, const ClockPair& clocks) {
  PD_CHECK(counts.size() == channels_.size() && !counts.empty());
  bool moved = false;
  for (size_t i = 0; i < counts.size(); ++i) {
    Channel& channel = channels_[i];
    const int64_t count = counts[i].count;
    if (!channel.last) moved = true;
    if (channel.last && count > *channel.last) {
      reading_.joules += double(count - *channel.last) * channel.joules_per_count;
      moved = true;
    }
    channel.last = count;
  }

  // A future stamp comes from another clock. When counts move and the stamp does not, they are of now.
  const uint64_t stamp = std::ranges::min(counts, {}, &ChannelCount::stamp).stamp;
  if (stamp != stamp_ && stamp != 0 && stamp <= clocks.ticks) {
    const std::chrono::duration<double> age(double(clocks.ticks - stamp) * clocks.seconds_per_tick);
    const auto written = clocks.now - std::chrono::duration_cast<std::chrono::steady_clock::duration>(age);
    reading_.until = std::max(reading_.until, written);
    stamp_ = stamp;
  } else if (moved) {
    reading_.until = clocks.now;
  }
  return reading_;
}

}  // namespace pd
