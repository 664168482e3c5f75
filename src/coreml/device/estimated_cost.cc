#include "coreml/device/estimated_cost.h"

#include <algorithm>
#include <map>
#include <utility>

#include "reference/count_ops.h"

namespace pd {
namespace {

constexpr double kFlopsPerSecond = 8e12, kSecondsPerCall = 0.2e-3;

}  // namespace

CallCost EstimatedCost(const ModelSpec& spec) {
  return [spec, known = std::map<std::pair<int, int>, double>()](const PrefillShape& shape) mutable {
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

}  // namespace pd
