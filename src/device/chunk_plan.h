// Which functions of fixed shapes compute a chunk of a prompt.
#pragma once
#include <functional>
#include <span>
#include <vector>

namespace pd {

// What one function computes, however few of its rows are used.
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

// What a call of a function costs, in any one unit.
using CallCost = std::function<double(const PrefillShape&)>;

// The cheapest calls for `count` tokens from position `first`. Throws kBadRequest when a token lies beyond
// what the largest bucket of history allows.
std::vector<PlannedCall> PlanCalls(std::span<const PrefillShape> functions, int first, int count,
                                   const CallCost& cost);

// Where calls of these functions that start at token `first` can end at most; `first` when none can.
int Reach(std::span<const PrefillShape> functions, int first);

}  // namespace pd
