// Where Core ML says that the operations of a function will run.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace pd {

struct PlannedOp {
  std::string type;    // "ios18.conv", as Core ML names it
  std::string result;  // the name of its first result
  std::string device;  // "cpu", "gpu", "neural_engine"; "unknown" when Core ML names none
  double cost = 0;     // Core ML's estimate, as a share of the function's; 0 when it has none
};

// Constants and the ops that only unpack them run nowhere and are left out.
struct Placement {
  int ops = 0, on_engine = 0;
  double cost = 0, cost_on_engine = 0;  // sums of the estimates
  std::vector<PlannedOp> elsewhere;     // in program order

  void Add(PlannedOp op);
  double ShareOfOps() const { return ops == 0 ? 0 : double(on_engine) / ops; }
  double ShareOfCost() const { return cost > 0 ? cost_on_engine / cost : ShareOfOps(); }
};

// What share must run on the engine for a function to be used there.
struct PlacementLimits {
  double least_ops = 0.9, least_cost = 0.9;
};

// Why a function is refused: its shares and the operations elsewhere, by type with how many there are, the
// costliest first; nothing when it keeps to the limits. A placement without operations is refused too.
std::optional<std::string> RefusedPlacement(const Placement& placement, const PlacementLimits& limits);

}  // namespace pd
