#include "planning/planner.h"

#include <algorithm>

namespace pd {
namespace {

// Limit of the gap in running texts that a chunk on their lane makes.
constexpr double kPatienceMs = 200;
constexpr int kSmallestChunk = 64;

}  // namespace

// A chunk on the lane of running texts is a gap in all of them, so it is halved until the gap is short
// enough.
int Planner::ChunkFor(const PrefillCost& cost, const PrefillQuestion& question) const {
  int size = std::max(question.chunk, 1);
  if (cost.own_lane() || question.decoding == 0) return size;
  while (size / 2 >= kSmallestChunk &&
         cost.ChunkMs(question.first, std::min(size, question.count)) > kPatienceMs)
    size /= 2;
  return size;
}

PrefillPlan Planner::PlanOn(const PrefillCost& cost, const PrefillQuestion& question) const {
  PrefillPlan plan;
  const int size = plan.choice.chunk = ChunkFor(cost, question);
  const int chunks = (question.count + size - 1) / size;
  const double own = cost.PromptMs(question.first, question.count, size);
  const double handoff = cost.HandoffMs(question.count) + cost.handoff_ms * std::max(chunks - 1, 0);
  const double last_handoff = cost.HandoffMs(question.count - std::max(chunks - 1, 0) * size);
  // The running chunk of the lane finishes first. Then the scheduler takes the prompt with the fewest tokens
  // left: longer ones wait for this one.
  double wait = 0;
  for (size_t other = 0; other <= costs_.units.size(); ++other) {
    const PrefillCost& beside = other < costs_.units.size() ? costs_.units[other] : costs_.direct;
    if (beside.lane != cost.lane) continue;
    if (other < question.running.size()) {
      const PrefillQuestion::Running& chunk = question.running[other];
      wait += std::max(0.0, beside.ChunkMs(chunk.first, chunk.count) - chunk.for_ms);
    }
    if (other < question.queued.size())
      for (const int rest : question.queued[other]) {
        if (rest <= question.count) {
          wait += beside.PromptMs(0, rest, size);
        } else {
          plan.delay_ms += own + (cost.own_lane() ? 0 : handoff);
        }
      }
  }
  const double context = question.first + question.count;
  const double step = costs_.decode.StepMs(question.decoding, context / 2);
  if (cost.own_lane()) {
    // All imports but the last overlap with the next chunk.
    plan.first_token_ms = wait + own + last_handoff;
    plan.loss_ms = question.decoding == 0 ? 0 : (wait + own) * (1 - 1 / cost.slowdown) + handoff;
  } else {
    // One decode step runs between two jobs.
    const int jobs = cost.handoff_token_ms > 0 ? 2 * chunks : chunks;
    plan.first_token_ms = wait + own + handoff + (question.decoding > 0 ? jobs * step : 0);
    plan.loss_ms = question.decoding == 0 ? 0 : own + handoff;
  }
  plan.first_token_ms += costs_.decode.StepMs(question.decoding + 1, context);
  plan.cost = plan.first_token_ms + plan.delay_ms + question.decoding * plan.loss_ms;
  return plan;
}

std::vector<PrefillPlan> Planner::Plans(const PrefillQuestion& question) const {
  std::vector<PrefillPlan> plans;
  for (size_t unit = 0; unit <= costs_.units.size(); ++unit) {
    const bool direct = unit == costs_.units.size();
    PrefillPlan plan = PlanOn(direct ? costs_.direct : costs_.units[unit], question);
    if (!direct) plan.choice.unit = unit;
    if (direct) plan.choice.unit.reset();
    plans.push_back(std::move(plan));
  }
  return plans;
}

PrefillChoice Planner::Choose(const PrefillQuestion& question) const {
  const auto plans = Plans(question);
  const auto best = std::ranges::min_element(plans, {}, &PrefillPlan::cost);
  PrefillChoice choice = best->choice;
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool direct = i == costs_.units.size();
    const bool twin = direct && std::ranges::find(costs_.units, costs_.direct.device, &PrefillCost::device) !=
                                    costs_.units.end();
    choice.why += fmt::format("{}{}{} {:.0f} ms", i > 0 ? ", " : "",
                              direct ? costs_.direct.device : costs_.units[i].device,
                              twin ? " beside the texts" : "", plans[i].first_token_ms);
    if (question.decoding > 0)
      choice.why += fmt::format(" and {:.0f} ms for each of {} texts", plans[i].loss_ms, question.decoding);
  }
  return choice;
}

MachineCosts WithoutUseless(MachineCosts costs) {
  constexpr int kLongest = 1 << 14;
  const Planner planner(costs);
  std::vector<bool> used(costs.units.size());
  for (int count = 16; count <= kLongest; count *= 2)
    for (const int texts : {0, 1, 4, 16}) {
      const PrefillChoice choice = planner.Choose({1, 0, count, 512, texts, {}, {}});
      if (choice.unit) used[*choice.unit] = true;
    }
  std::vector<PrefillCost> useful;
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i]) useful.push_back(std::move(costs.units[i]));
  costs.units = std::move(useful);
  return costs;
}

}  // namespace pd
