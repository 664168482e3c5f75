// Chooses the device that computes a prompt: the one that costs all requests together the least time.
#pragma once
#include <string>
#include <vector>

#include "planning/cost_model.h"
#include "serving/scheduler.h"

namespace pd {

// One way to compute a prompt, and its cost.
struct PrefillPlan {
  PrefillChoice choice;
  double first_token_ms = 0;  // from now to the prompt's first token
  double loss_ms = 0;         // time that each running text loses
  double delay_ms = 0;        // sum over all longer prompts that wait for the same device
  double cost = 0;            // first_token_ms + delay_ms + loss_ms of each running text
};

// Pure: the same question has the same answer.
class Planner {
 public:
  explicit Planner(MachineCosts costs) : costs_(std::move(costs)) {}

  // One plan for each unit, in order, and the decode device's last.
  std::vector<PrefillPlan> Plans(const PrefillQuestion& question) const;
  // The cheapest plan. Ties go to a unit, which leaves the decode device free.
  PrefillChoice Choose(const PrefillQuestion& question) const;

  const MachineCosts& costs() const { return costs_; }

 private:
  PrefillPlan PlanOn(const PrefillCost& cost, const PrefillQuestion& question) const;
  int ChunkFor(const PrefillCost& cost, const PrefillQuestion& question) const;

  MachineCosts costs_;
};

// Drops the units that the planner never chooses: for prompts of 16 tokens and more, beside 0 to 16 running
// texts, with no other prompt waiting.
MachineCosts WithoutUseless(MachineCosts costs);

}  // namespace pd
