#include "device/chunk_plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"

namespace pd {
namespace {

struct FirstCall {
  double cost = std::numeric_limits<double>::infinity();
  PrefillShape shape;
  int next = 0;  // the first token after the call
};

class CallPlanner {
 public:
  CallPlanner(std::span<const PrefillShape> functions, int end, const CallCost& cost)
      : functions_(functions), end_(end), cost_(cost) {}

  // The best first call for tokens [first, end), with the cost of all calls for them.
  const FirstCall& Best(int first) {
    const auto [it, added] = best_.try_emplace(first);
    if (!added) return it->second;
    FirstCall best;
    for (const PrefillShape& shape : functions_) {
      if (shape.history < first) continue;
      const int reach = first + std::min(shape.tokens, end_ - first);
      Consider(shape, reach, best);
      // A call may also stop at the end of a bucket, so that the next one can use the bucket fully.
      for (const PrefillShape& next : functions_)
        if (next.history > first && next.history < reach) Consider(shape, next.history, best);
    }
    return best_[first] = best;
  }

 private:
  void Consider(const PrefillShape& shape, int next, FirstCall& best) {
    const double cost = cost_(shape) + (next == end_ ? 0 : Best(next).cost);
    // Among equal costs prefer the call that reaches further: fewer calls.
    if (cost < best.cost || (cost == best.cost && next > best.next)) best = {cost, shape, next};
  }

  std::span<const PrefillShape> functions_;
  int end_;
  const CallCost& cost_;
  std::map<int, FirstCall> best_;  // by first token
};

}  // namespace

std::vector<PlannedCall> PlanCalls(std::span<const PrefillShape> functions, int first, int count,
                                   const CallCost& cost) {
  CallPlanner planner(functions, first + count, cost);
  std::vector<PlannedCall> calls;
  for (int at = first; at < first + count;) {
    const FirstCall& call = planner.Best(at);
    if (call.cost == std::numeric_limits<double>::infinity())
      throw Fail(
          ErrorKind::kBadRequest,
          "tokens {} to {} do not fit the exported functions, which reach token {} from there: leave them to "
          "the decode device, or export with a longer history",
          first, first + count, Reach(functions, first));
    calls.push_back({call.shape, at, call.next - at});
    at = call.next;
  }
  return calls;
}

int Reach(std::span<const PrefillShape> functions, int first) {
  // A call begins at the end of its bucket, or where earlier calls ended.
  int reach = first;
  for (bool grown = true; grown;) {
    grown = false;
    for (const PrefillShape& shape : functions) {
      const int end = shape.history < first ? first : std::min(shape.history, reach) + shape.tokens;
      if (end > reach) reach = end, grown = true;
    }
  }
  return reach;
}

}  // namespace pd
