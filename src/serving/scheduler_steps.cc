// The order of jobs on the decode lane, and its steps.
#include <algorithm>
#include <utility>

#include "serving/scheduler.h"

namespace pd {

// Frees memory, so it comes before all other jobs.
std::optional<Job> Scheduler::NextCleanup(LaneId lane) {
  const std::set<RequestId>& cleanup = agenda_.on_lane[size_t(lane)].cleanup;
  if (cleanup.empty()) return std::nullopt;
  LiveRequest& live = Get(*cleanup.begin());
  if (live.filed.end_session == lane) {
    live.session->busy = true;
    return EndPrefill{live.id, live.session->unit};
  }
  return CloseSlot{live.id, *live.slot};
}

std::optional<Job> Scheduler::NextOnDecodeLane() {
  if (auto job = NextOpen()) return job;
  const bool read_now = !uncollected_.empty() && (!options_.runs_ahead || uncollected_.back().first);
  if (read_now || uncollected_.size() == 2) return CollectStep{};
  if (heavy_is_due_)
    if (auto job = NextHeavy()) return job;
  if (auto job = NextStep()) return job;
  if (!uncollected_.empty()) return CollectStep{};
  return NextHeavy();
}

std::optional<Job> Scheduler::NextOpen() {
  if (agenda_.open.empty()) return std::nullopt;
  const LiveRequest& live = Get(*agenda_.open.begin());
  return OpenSlot{live.id, live.plan.capacity, live.plan.variant};
}

std::optional<Job> Scheduler::NextHeavy() {
  std::optional<Job> job = NextImport();
  if (!job) job = NextExport();
  if (!job) job = NextChunk(options_.decode_lane);
  if (job) heavy_is_due_ = false;
  return job;
}

std::optional<Job> Scheduler::NextStep() {
  if (agenda_.rows.empty()) return std::nullopt;
  std::vector<RequestId> ids;
  for (auto at = agenda_.rows.begin(); at != agenda_.rows.end() && ids.size() < size_t(options_.max_rows);
       ++at)
    ids.push_back(at->second);
  if (ids.size() == agenda_.rows.size()) std::ranges::sort(ids);
  SubmitStep job;
  UncollectedStep step;
  ++steps_;
  for (const RequestId id : ids) AddRow(Get(id), job, step);
  uncollected_.push_back(std::move(step));
  heavy_is_due_ = true;
  return job;
}

void Scheduler::AddRow(LiveRequest& live, SubmitStep& job, UncollectedStep& step) {
  const std::vector<TokenId>& prompt = live.of->prompt;
  SubmitStep::Sampling sampling{live.of->sample, {}, live.of};
  sampling.spec.draw = uint64_t(live.submitted);
  if (!sampling.spec.penalties.Off()) {
    sampling.context = prompt;
    sampling.context.insert(sampling.context.end(), live.tokens.begin(), live.tokens.end());
  }
  step.requests.push_back(live.id);
  step.first |= live.submitted == 0;
  const TokenId known = live.tokens.empty() ? prompt.back() : live.tokens.back();
  job.request.push_back(live.id);
  job.ids.push_back(live.steps_in_flight > 0 ? kLastSampled : known);
  job.pos.push_back(live.goal + live.submitted);
  job.slot.push_back(*live.slot);
  job.sample.push_back(std::move(sampling));
  if (live.submitted++ == 0) live.decode_began = now_;
  ++live.steps_in_flight;
  // To the end of the line: no row has a later step.
  auto row = agenda_.rows.extract({live.last_step, live.id});
  live.last_step = steps_;
  row.value().first = steps_;
  agenda_.rows.insert(agenda_.rows.end(), std::move(row));
}

void Scheduler::TakeSample(LiveRequest& live, const Sampled& sampled) {
  if (live.tokens.empty()) live.stats.first_token_ms = now_ - live.arrived;
  live.tokens.push_back(sampled.token);
  live.stats.decode_tokens = int(live.tokens.size());
  live.stats.decode_ms = now_ - live.decode_began;
  if (std::ranges::find(live.of->end_tokens, sampled.token) != live.of->end_tokens.end())
    return End(live, FinishReason::kStop);
  notices_.push_back(TokenOut{live.id, sampled});
  if (int(live.tokens.size()) == live.plan.max_tokens) End(live, FinishReason::kLength);
}

void Scheduler::FailStep(const UncollectedStep& step, const Failure& failure) {
  for (const RequestId id : step.requests) {
    LiveRequest& live = Get(id);
    --live.steps_in_flight;
    End(live, FinishReason::kError, failure);
  }
}

}  // namespace pd
