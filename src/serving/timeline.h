// A picture of what each lane did over time.
#pragma once
#include <string>
#include <vector>

#include "serving/job.h"

namespace pd {

enum class SpanKind : uint8_t { kStep, kPrefill, kHandoff, kOther };

// One job on a lane.
struct Span {
  LaneId lane = 0;
  SpanKind kind = SpanKind::kOther;
  RequestId request = 0;  // of a step: the first row's
  double begin_ms = 0, end_ms = 0;
};

SpanKind KindOf(const Job& job);
RequestId RequestOf(const Job& job);  // 0: none

// An SVG of [begin, end] ms: a row for each lane, bars coloured by kind, and a legend. Neighbours of one kind
// that are too narrow to be seen apart are drawn as one bar.
std::string TimelineSvg(const std::vector<Span>& spans, const std::vector<std::string>& lanes,
                        double begin_ms, double end_ms);

}  // namespace pd
