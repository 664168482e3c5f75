// Which functions compute a chunk of a prompt.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "coreml/mil/prefill.h"
#include "model/spec.h"

namespace pd {

// One call: `count` tokens from position `first` by a function of `shape`; count <= shape.tokens, and
// first <= shape.history.
struct PlannedCall {
  mil::PrefillShape shape;
  int first = 0, count = 0;
  bool operator==(const PlannedCall&) const = default;
};

// What a call of a function costs, in any one unit: it does the same work however few of its rows are used.
using CallCost = std::function<double(const mil::PrefillShape&)>;

// Costs from the operations a function does, for as long as nobody has measured it. Seconds at 8 TFLOP/s, and
// 0.2 ms a call.
CallCost EstimatedCost(const ModelSpec& spec);

// The cheapest calls for `count` tokens from position `first`. Throws kBadRequest when a token lies beyond
// what the largest bucket of history allows.
std::vector<PlannedCall> PlanCalls(std::span<const mil::PrefillShape> functions, int first, int count,
                                   const CallCost& cost);

// Where calls of these functions that start at token `first` can end at most; `first` when none can.
int Reach(std::span<const mil::PrefillShape> functions, int first);

}  // namespace pd
