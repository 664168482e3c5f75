#include "coreml/runtime/placement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace pd {
namespace {

constexpr size_t kMostNamed = 6;  // kinds of operations listed in a refusal

struct Kind {
  std::string type, device;
  int count = 0;
  double cost = 0;
};

std::vector<Kind> ByKind(const std::vector<PlannedOp>& ops) {
  std::map<std::pair<std::string, std::string>, Kind> kinds;
  for (const PlannedOp& op : ops) {
    Kind& kind = kinds[{op.type, op.device}];
    kind.type = op.type, kind.device = op.device;
    ++kind.count;
    kind.cost += op.cost;
  }
  std::vector<Kind> sorted;
  sorted.reserve(kinds.size());
  for (auto& [key, kind] : kinds) sorted.push_back(std::move(kind));
  std::ranges::stable_sort(sorted, [](const Kind& a, const Kind& b) {
    return a.cost != b.cost ? a.cost > b.cost : a.count > b.count;
  });
  return sorted;
}

}  // namespace

void Placement::Add(PlannedOp op) {
  ++ops;
  cost += op.cost;
  if (op.device == "neural_engine") {
    ++on_engine;
    cost_on_engine += op.cost;
  } else {
    elsewhere.push_back(std::move(op));
  }
}

std::optional<std::string> RefusedPlacement(const Placement& placement, const PlacementLimits& limits) {
  if (placement.ops == 0) return "Core ML's plan lists no operation";
  if (placement.ShareOfOps() >= limits.least_ops && placement.ShareOfCost() >= limits.least_cost)
    return std::nullopt;
  std::vector<std::string> listed;
  const std::vector<Kind> kinds = ByKind(placement.elsewhere);
  for (size_t i = 0; i < std::min(kinds.size(), kMostNamed); ++i)
    listed.push_back(fmt::format("{} {} on {}", kinds[i].count, kinds[i].type, kinds[i].device));
  if (kinds.size() > kMostNamed) listed.push_back(fmt::format("{} other kinds", kinds.size() - kMostNamed));
  return fmt::format(
      "{} of {} operations ({:.0f} % of the estimated cost) are planned for the Neural Engine; elsewhere: {}",
      placement.on_engine, placement.ops, 100 * placement.ShareOfCost(), fmt::join(listed, ", "));
}

}  // namespace pd
