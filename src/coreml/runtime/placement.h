// Where Core ML plans to run the operations of a function.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace pd {

struct PlannedOp {
  std::string type;    // "ios18.conv", as Core ML names it
  std::string result;  // the name of its first result
  std::string device;  // "cpu", "gpu", "neural_engine"; "unknown" if Core ML names none
  double cost = 0;     // Core ML's estimate, as a share of the function's cost; 0 if it has none
};

// Without constants and the ops that only unpack them, since these run nowhere.
struct Placement {
  int ops = 0, on_engine = 0;
  double cost = 0, cost_on_engine = 0;  // sums of the estimates
  std::vector<PlannedOp> elsewhere;     // in program order

  void Add(PlannedOp op);
  double ShareOfOps() const { return ops == 0 ? 0 : double(on_engine) / ops; }
  double ShareOfCost() const { return cost > 0 ? cost_on_engine / cost : ShareOfOps(); }
};

// The share that must run on the engine for a function to be used there.
struct PlacementLimits {
  double least_ops = 0.9, least_cost = 0.9;
};

// Why a function is refused: its shares, and the operations elsewhere by type and count, the costliest first;
// nullopt when it is within the limits. A placement without operations is refused too.
std::optional<std::string> RefusedPlacement(const Placement& placement, const PlacementLimits& limits);

}  // namespace pd
