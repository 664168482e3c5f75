// Chooses the fixed-shape functions that compute a chunk of a prompt.
#pragma once
#include <functional>
#include <span>
#include <vector>

namespace pd {

// What one function computes; the cost is the same however few rows are used.
struct PrefillShape {
  int tokens = 0;   // rows of a chunk
  int history = 0;  // past tokens it can attend to
  bool operator==(const PrefillShape&) const = default;
};

// One call: `count` tokens from position `first` by a function of `shape`; count <= shape.tokens, and
// first <= shape.history.
struct PlannedCall {
  PrefillShape shape;
  int first = 0, count = 0;
  bool operator==(const PlannedCall&) const = default;
};

// The cost of one call of a function, in any unit.
using CallCost = std::function<double(const PrefillShape&)>;

// The cheapest calls for `count` tokens from position `first`. Throws kBadRequest when a token lies beyond
// the largest history bucket.
std::vector<PlannedCall> PlanCalls(std::span<const PrefillShape> functions, int first, int count,
                                   const CallCost& cost);

// The furthest end that calls of these functions from token `first` can reach; `first` when none can start.
int Reach(std::span<const PrefillShape> functions, int first);

}  // namespace pd
