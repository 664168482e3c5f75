// Who gets room, and which device computes the prompt.
#include <algorithm>
#include <utility>

#include "serving/scheduler.h"

namespace pd {

// The head of the line waits until there is room for it. Otherwise small requests could pass a large one for
// ever.
void Scheduler::AdmitWaiting() {
  while (!waiting_.empty() && live_.size() < size_t(options_.max_running) && Admit(waiting_.front())) {
    waiting_.Take(waiting_.front().id);
    RefileTouched();
  }
}

bool Scheduler::Admit(const QueuedRequest& waiting) {
  ++looks_;
  const int capacity = waiting.plan.capacity;
  if (!room_.FitsNow(capacity, 0)) return false;
  LiveRequest live;
  static_cast<QueuedRequest&>(live) = waiting;
  live.goal = int(waiting.of->prompt.size()) - 1;
  if (options_.cache) UseCache(live);

  PrefillChoice choice{std::nullopt, waiting.of->prefill_chunk, {}};
  if (live.prompt_left() > 0) choice = Choose(live);
  live.chunk = std::max(choice.chunk, 1);
  live.unit = choice.unit;
  SetReach(live);
  if (live.direct()) live.unit.reset();
  size_t session_bytes = 0;
  if (live.unit) {
    session_bytes = BytesOf(options_.prefill[*live.unit].session_bytes, live.goal);
    if (!room_.FitsAlone(capacity, session_bytes)) {  // there will never be room for both
      live.unit.reset();
      session_bytes = 0;
      live.stats.fallback = "there is no room for a prefill session";
    } else if (!room_.FitsNow(capacity, session_bytes)) {
      return false;
    }
  }
  if (live.unit) {
    live.stats.prefill_device = options_.prefill[*live.unit].name;
  } else if (live.stats.fallback.empty()) {
    live.stats.prefill_device = options_.decode_name;
    live.stats.direct = true;
  }
  live.stats.prefill_why = choice.why;
  live.stats.queued_ms = now_ - live.arrived;
  KvRoom::Reserved reserved = room_.Reserve(capacity, session_bytes);
  live.slot_room = std::move(reserved.slot);
  if (live.unit) live.session_room = std::move(reserved.session);
  touched_.push_back(live.id);
  live_.emplace(live.id, std::move(live));
  return true;
}

PrefillChoice Scheduler::Choose(const LiveRequest& live) {
  if (!options_.choose) {
    PrefillChoice choice{std::nullopt, live.of->prefill_chunk, {}};
    if (!options_.prefill.empty()) choice.unit = 0;
    return choice;
  }
  const size_t units = options_.prefill.size();
  PrefillQuestion question{live.id, live.asked, live.prompt_left(), live.of->prefill_chunk, decoding_, {}};
  question.queued.resize(units + 1);
  for (const RequestId id : agenda_.unread) {
    ++looks_;
    const LiveRequest& other = live_.at(id);
    question.queued[other.direct() ? units : *other.unit].push_back(other.prompt_left());
  }
  question.running.resize(units + 1);
  for (const LaneState& lane : lanes_) {
    if (!lane.running) continue;
    const double ms = now_ - lane.running->since;
    if (const auto* chunk = std::get_if<PrefillChunk>(&lane.running->job)) {
      question.running[chunk->unit] = {chunk->first, chunk->count, ms};
    } else if (const auto* step = std::get_if<SubmitStep>(&lane.running->job); step && step->sample.empty()) {
      question.running.back() = {step->pos.front(), int(step->pos.size()), ms};
    }
  }
  return options_.choose(question);
}

}  // namespace pd
