#include "serving/scheduler.h"

#include <algorithm>
#include <utility>

namespace pd {
namespace {

const Failure* FailureOf(const Done& done) { return std::get_if<Failure>(&done.result); }

// The request that a job runs for; nullopt for steps, which run for many.
std::optional<RequestId> OwnerOf(const Job& job) {
  return std::visit(
      [](const auto& j) -> std::optional<RequestId> {
        using T = std::decay_t<decltype(j)>;
        if constexpr (std::is_same_v<T, SubmitStep> || std::is_same_v<T, CollectStep>) {
          return std::nullopt;
        } else {
          return j.request;
        }
      },
      job);
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)),
      room_({options_.kv_limit, options_.slot_bytes, options_.even_slots}),
      agenda_(options_.lanes),
      lanes_(size_t(options_.lanes)) {
  PD_CHECK(options_.decode_lane >= 0 && options_.decode_lane < options_.lanes && options_.max_rows >= 1);
  for (const PrefillUnit& unit : options_.prefill) PD_CHECK(unit.lane >= 0 && unit.lane < options_.lanes);
}

void Scheduler::On(const Event& event) {
  std::visit([this](const auto& e) { Handle(e); }, event);
  RefileTouched();
  AdmitWaiting();
}

std::optional<Job> Scheduler::Next(LaneId lane) {
  LaneState& state = lanes_.at(size_t(lane));
  if (state.running) return std::nullopt;
  std::optional<Job> job = NextCleanup(lane);
  if (!job) job = lane == options_.decode_lane ? NextOnDecodeLane() : NextChunk(lane);
  if (!job) return std::nullopt;
  if (const auto owner = OwnerOf(*job)) ++Get(*owner).running_jobs;
  state.running = {*job, now_};
  RefileTouched();
  return job;
}

std::vector<Notice> Scheduler::TakeNotices() { return std::exchange(notices_, {}); }

std::optional<double> Scheduler::NextTimeout() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

// ---- requests ----

LiveRequest* Scheduler::Find(RequestId id) {
  const auto at = live_.find(id);
  if (at == live_.end()) return nullptr;
  ++looks_;
  touched_.push_back(id);
  return &at->second;
}

LiveRequest& Scheduler::Get(RequestId id) {
  LiveRequest* live = Find(id);
  PD_CHECK(live);
  return *live;
}

void Scheduler::End(LiveRequest& live, FinishReason reason, const Failure& failure) {
  if (live.ended()) return;
  if (live.phase == LiveRequest::Phase::kDecoding) --decoding_;
  live.phase = LiveRequest::Phase::kEnded;
  // A device that was told to stop did not fail.
  if (reason == FinishReason::kError && failure.kind == ErrorKind::kCancelled)
    reason = FinishReason::kCancelled;
  live.whole = reason == FinishReason::kStop || reason == FinishReason::kLength;
  live.ready.clear();
  live.prefix.clear();
  if (const auto deadline = live.deadline()) deadlines_.erase({*deadline, live.id});
  live.stats.total_ms = now_ - live.arrived;
  notices_.push_back(Ended{
      live.id, {live.tokens, reason, reason == FinishReason::kError ? failure : Failure(), live.stats}});
}

void Scheduler::EndWaiting(const QueuedRequest& request, FinishReason reason, const Failure& failure) {
  if (const auto deadline = request.deadline()) deadlines_.erase({*deadline, request.id});
  RequestStats stats;
  stats.queued_ms = stats.total_ms = now_ - request.arrived;
  notices_.push_back(Ended{request.id, {{}, reason, failure, stats}});
}

// Whoever ends a request or changes it only says so; it is filed anew, or forgotten, here.
void Scheduler::RefileTouched() {
  for (const RequestId id : std::exchange(touched_, {})) {
    const auto at = live_.find(id);
    if (at == live_.end()) continue;
    LiveRequest& live = at->second;
    const bool over = live.ended() && live.holds_nothing();
    agenda_.File(live, over ? Work() : WorkOf(live), options_.decode_lane);
    if (over) live_.erase(at);
  }
}

// Work that needs a lane is asked for only when the lane is free, so that jobs running there do not matter.
Work Scheduler::WorkOf(const LiveRequest& live) const {
  Work work;
  if (live.session && !live.session->busy && (live.ended() || live.direct()))
    work.end_session = options_.prefill[live.session->unit].lane;
  const bool wants_export = WantsExport(live);
  work.export_tokens = wants_export && !(live.ended() && live.steps_in_flight > 0);
  if (live.ended()) {
    work.close = live.slot && live.steps_in_flight == 0 && !wants_export;
    return work;
  }
  work.open = !live.slot;
  work.import = live.slot && !live.ready.empty();
  work.row = live.phase == LiveRequest::Phase::kDecoding && live.submitted < live.plan.max_tokens;
  work.chunk = ChunkLane(live);
  work.prompt_left = live.prompt_left();
  work.may_use_cache =
      options_.cache && work.prompt_left > 0 && !live.session && live.asked == live.stats.cached_tokens;
  return work;
}

// ---- events ----

void Scheduler::Handle(const Arrived& event) {
  PD_CHECK(!live_.contains(event.request));
  QueuedRequest request{event.request, event.of, event.plan, now_};
  if (!room_.FitsAlone(event.plan.capacity, 0)) {
    const size_t bytes = BytesOf(options_.slot_bytes, event.plan.capacity);
    return EndWaiting(
        request, FinishReason::kError,
        {ErrorKind::kOutOfMemory,
         fmt::format("a sequence of {} tokens takes {} MB of keys and values, and there is room for {} MB: "
                     "ask for fewer tokens or a shorter context",
                     event.plan.capacity, bytes >> 20, options_.kv_limit >> 20)});
  }
  if (const auto deadline = request.deadline()) deadlines_.insert({*deadline, request.id});
  waiting_.Push(std::move(request));
  AdmitWaiting();
  if (waiting_.size() > size_t(options_.max_queued))
    if (const auto last = waiting_.Take(event.request))
      EndWaiting(
          *last, FinishReason::kError,
          {ErrorKind::kBusy, fmt::format("{} requests wait already: try again later", options_.max_queued)});
}

void Scheduler::Handle(const Cancelled& event) {
  if (const auto waiting = waiting_.Take(event.request))
    return EndWaiting(*waiting, FinishReason::kCancelled);
  if (LiveRequest* live = Find(event.request)) End(*live, FinishReason::kCancelled);
}

void Scheduler::Handle(const Stopped& event) {
  LiveRequest* live = Find(event.request);
  if (!live) return;
  if (event.failure) return End(*live, FinishReason::kError, *event.failure);
  End(*live, FinishReason::kStop);
}

void Scheduler::Handle(const Tick& event) {
  PD_CHECK(event.now >= now_);
  now_ = event.now;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const RequestId id = deadlines_.begin()->second;
    if (const auto waiting = waiting_.Take(id)) {
      EndWaiting(*waiting, FinishReason::kTimeout);
    } else {
      End(Get(id), FinishReason::kTimeout);
    }
  }
}

void Scheduler::Handle(const Done& event) {
  std::optional<RunningJob>& running = lanes_.at(size_t(event.lane)).running;
  PD_CHECK(running);
  const Job job = std::move(std::exchange(running, std::nullopt)->job);
  if (const auto owner = OwnerOf(job)) --Get(*owner).running_jobs;
  std::visit([&](const auto& j) { Settle(j, event); }, job);
}

void Scheduler::Settle(const OpenSlot& job, const Done& done) {
  LiveRequest& live = Get(job.request);
  if (const Failure* failure = FailureOf(done)) return End(live, FinishReason::kError, *failure);
  live.slot = std::get<SlotId>(done.result);
  StartDecodeWhenFilled(live);
}

void Scheduler::Settle(const PrefillChunk& job, const Done& done) {
  LiveRequest& live = Get(job.request);
  live.session->busy = false;
  if (live.ended() || !live.unit) return;  // an import failed meanwhile: the chunk is not needed any more
  live.stats.prefill_ms += done.ms;
  const Failure* failure = FailureOf(done);
  if (!failure) {
    live.stats.prefill_tokens += job.count;
    const Chunk& chunk = std::get<Chunk>(done.result);
    live.ready.push_back(chunk);
    Keep(live, chunk);
  } else if (failure->kind == ErrorKind::kCancelled ||
             (failure->kind == ErrorKind::kUnsupported && live.of->prefill_is_named)) {
    End(live, FinishReason::kError, *failure);
  } else {
    FallBack(live, failure->message);
  }
}

void Scheduler::Settle(const EndPrefill& job, const Done& done) {
  LiveRequest& live = Get(job.request);
  live.session.reset();
  live.session_room.reset();
  Warn("the prefill session", live.id, done);
}

void Scheduler::Settle(const ImportSegment& job, const Done& done) {
  LiveRequest& live = Get(job.request);
  if (const Failure* failure = FailureOf(done)) {
    live.ready.clear();
    FallBack(live, failure->message);
  } else {
    live.filled += job.segment.count;
    live.stats.handoff_ms += done.ms;
    if (!live.ended()) {
      live.stats.handoff_bytes += live.ready.front().bytes;
      live.ready.pop_front();
    }
  }
  StartDecodeWhenFilled(live);
}

void Scheduler::Settle(const SubmitStep&, const Done& done) {
  uncollected_.back().submit_ms = done.ms;
  const Failure* failure = FailureOf(done);
  if (!failure) return;
  const UncollectedStep step = std::move(uncollected_.back());
  uncollected_.pop_back();
  FailStep(step, *failure);
}

void Scheduler::Settle(const CollectStep&, const Done& done) {
  const UncollectedStep step = std::move(uncollected_.front());
  uncollected_.pop_front();
  if (const Failure* failure = FailureOf(done)) return FailStep(step, *failure);
  if (step.prompt_rows > 0) {
    LiveRequest& live = Get(step.requests[0]);
    --live.steps_in_flight;
    live.filled += step.prompt_rows;
    (live.stats.direct ? live.stats.prefill_tokens : live.stats.tail_tokens) += step.prompt_rows;
    (live.stats.direct ? live.stats.prefill_ms : live.stats.tail_ms) += step.submit_ms + done.ms;
    return StartDecodeWhenFilled(live);
  }
  const auto& rows = std::get<std::vector<SampledRow>>(done.result);
  PD_CHECK(rows.size() == step.requests.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    LiveRequest& live = Get(step.requests[i]);
    PD_CHECK(rows[i].slot == live.slot);
    --live.steps_in_flight;
    if (!live.ended()) TakeSample(live, rows[i].sampled);
  }
}

// When the device cannot export some tokens, neither they nor the tokens after them are kept.
void Scheduler::Settle(const ExportSegment& job, const Done& done) {
  LiveRequest& live = Get(job.request);
  if (const auto* chunk = std::get_if<Chunk>(&done.result)) {
    Keep(live, *chunk);
  } else {
    live.kept.reset();
  }
}

// A slot that could not be cut is as it was: what is exported of it is still right.
void Scheduler::Settle(const TruncateSlot&, const Done&) {}

void Scheduler::Settle(const CloseSlot& job, const Done& done) {
  LiveRequest& live = Get(job.request);
  live.slot.reset();
  Warn("the slot", live.id, done);
}

// The request was answered already, and what it held counts as closed.
void Scheduler::Warn(const char* what, RequestId id, const Done& done) {
  if (const Failure* failure = FailureOf(done))
    notices_.push_back(Warned{fmt::format("{} of request {} did not close: {}", what, id, failure->message)});
}

}  // namespace pd
