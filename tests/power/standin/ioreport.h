// A stand-in for Apple's IOReport and for the part of Core Foundation that src/power/ioreport.cc calls: a
// shared library that exports their C functions. Tests set what it reports.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace pd::test {

struct StandInChannel {
  std::string name, unit;
  int64_t count = 0;
  uint64_t stamp = 0;      // 0: the sample has no "RawElements"
  bool in_samples = true;  // or only in the group
};

struct IoReportStandIn {
  std::vector<StandInChannel> channels;  // of the group "Energy Model"
  uint64_t ticks = 0;                    // of the clock, 125/3 nanoseconds each
  bool subscribes = true, samples = true;
  int objects = 0;  // alive
};

IoReportStandIn& StandIn();

}  // namespace pd::test
