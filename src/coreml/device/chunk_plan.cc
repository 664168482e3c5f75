#include "coreml/device/chunk_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "reference/count_ops.h"

namespace pd {
namespace {

constexpr double kFlopsPerSecond = 8e12, kSecondsPerCall = 0.2e-3;

struct Step {
  double cost = std::numeric_limits<double>::infinity();
  mil::PrefillShape shape;
  int next = 0;  // the first token after the call
};

class Planner {
 public:
  Planner(std::span<const mil::PrefillShape> functions, int end, const CallCost& cost)
      : functions_(functions), end_(end), cost_(cost) {}

  // The best first call for tokens [first, end), and the cost of all of them.
  const Step& Best(int first) {
    const auto [it, added] = best_.try_emplace(first);
    if (!added) return it->second;
    Step best;
    for (const mil::PrefillShape& shape : functions_) {
      if (shape.history < first) continue;
      const int reach = first + std::min(shape.tokens, end_ - first);
      Consider(shape, reach, best);
      // A call may also stop where a bucket ends, so that the next one can use it to the full.
      for (const mil::PrefillShape& next : functions_)
        if (next.history > first && next.history < reach) Consider(shape, next.history, best);
    }
    return best_[first] = best;
  }

 private:
  void Consider(const mil::PrefillShape& shape, int next, Step& best) {
    const double cost = cost_(shape) + (next == end_ ? 0 : Best(next).cost);
    // Of equal costs the call that gets further: fewer calls.
    if (cost < best.cost || (cost == best.cost && next > best.next)) best = {cost, shape, next};
  }

  std::span<const mil::PrefillShape> functions_;
  int end_;
  const CallCost& cost_;
  std::map<int, Step> best_;  // by first token
};

}  // namespace

CallCost EstimatedCost(const ModelSpec& spec) {
  return [spec, known = std::map<std::pair<int, int>, double>()](const mil::PrefillShape& shape) mutable {
    double& cost = known[{shape.tokens, shape.history}];
    if (cost == 0) {
      // Masked keys are computed too, so a function costs what its last rows would cost at full history.
      const double linear = CostOf(spec, 0, 1, 0).flops;
      const double at_end = CostOf(spec, shape.history + shape.tokens - 1, 1, 0).flops;
      cost = std::max(linear, at_end) * shape.tokens / kFlopsPerSecond + kSecondsPerCall;
    }
    return cost;
  };
}

std::vector<PlannedCall> PlanCalls(std::span<const mil::PrefillShape> functions, int first, int count,
                                   const CallCost& cost) {
  Planner planner(functions, first + count, cost);
  std::vector<PlannedCall> calls;
  for (int at = first; at < first + count;) {
    const Step& step = planner.Best(at);
    if (step.cost == std::numeric_limits<double>::infinity())
      throw Fail(
          ErrorKind::kBadRequest,
          "tokens {} to {} do not fit the exported functions, which reach token {} from there: leave them to "
          "the decode device, or export with a larger --history",
          first, first + count, Reach(functions, first));
    calls.push_back({step.shape, at, step.next - at});
    at = step.next;
  }
  return calls;
}

int Reach(std::span<const mil::PrefillShape> functions, int first) {
  // A call begins at the end of its bucket, or where the others got to.
  int reach = first;
  for (bool grown = true; grown;) {
    grown = false;
    for (const mil::PrefillShape& shape : functions) {
      const int end = shape.history < first ? first : std::min(shape.history, reach) + shape.tokens;
      if (end > reach) reach = end, grown = true;
    }
  }
  return reach;
}

}  // namespace pd
