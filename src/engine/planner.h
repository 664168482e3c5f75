// Which device reads a prompt: the one that costs everybody together the least time.
#pragma once
#include <string>
#include <vector>

#include "engine/cost_model.h"
#include "engine/scheduler.h"

namespace pd {

// A way to read one prompt, with what it would take.
struct PrefillPlan {
  PrefillChoice choice;
  double first_token_ms = 0;  // from now to the prompt's first token
  double loss_ms = 0;         // that every running text loses meanwhile
  double delay_ms = 0;        // of all prompts together that wait for the same device and are longer
  double cost = 0;            // first_token_ms, delay_ms, and loss_ms for each running text
};

// Pure.
class Planner {
 public:
  explicit Planner(MachineCosts costs) : costs_(std::move(costs)) {}

  // All ways, in the order of units, the decode device last. `choice.why` compares the first with the others.
  std::vector<PrefillPlan> Plans(const PrefillQuestion& question) const;
  // The cheapest. Ties go to a device with a lane of its own, which keeps the other free.
  PrefillChoice Choose(const PrefillQuestion& question) const;

  const MachineCosts& costs() const { return costs_; }

 private:
  PrefillPlan PlanOn(const PrefillCost& cost, const PrefillQuestion& question) const;
  int ChunkFor(const PrefillCost& cost, const PrefillQuestion& question) const;

  MachineCosts costs_;
};

// Without the units that nobody would be given: for no length from 16 tokens on, beside none to 16 running
// texts, with no other prompt waiting.
MachineCosts WithoutUseless(MachineCosts costs);

}  // namespace pd
