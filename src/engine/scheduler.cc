#include "engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pd {
namespace {

const Failure* FailureOf(const Done& done) { return std::get_if<Failure>(&done.result); }

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)),
      running_(size_t(options_.lanes)),
      running_since_(size_t(options_.lanes), 0),
      chunks_since_oldest_(size_t(options_.lanes), 0) {
  PD_CHECK(options_.decode_lane >= 0 && options_.decode_lane < options_.lanes && options_.max_rows >= 1);
  for (const PrefillUnit& unit : options_.prefill) PD_CHECK(unit.lane >= 0 && unit.lane < options_.lanes);
}

void Scheduler::On(const Event& event) {
  std::visit([this](const auto& e) { Handle(e); }, event);
  AdmitWaiting();
}

std::vector<Notice> Scheduler::TakeNotices() { return std::exchange(notices_, {}); }

std::optional<double> Scheduler::NextTimeout() const {
  std::optional<double> next;
  const auto consider = [&](const Waiting& request) {
    if (request.of->timeout_ms <= 0) return;
    const double at = request.arrived + request.of->timeout_ms;
    next = std::min(next.value_or(at), at);
  };
  for (const Waiting& request : waiting_) consider(request);
  for (const auto& [id, live] : live_)
    if (!live.ended) consider(live);
  return next;
}

// ---- events ----

void Scheduler::Handle(const Arrived& event) {
  PD_CHECK(!live_.contains(event.request));
  waiting_.push_back({event.request, event.of, event.plan, now_});
  const size_t bytes = options_.kv_bytes_per_token * size_t(event.plan.capacity);
  if (bytes > options_.kv_limit) {
    EndWaiting(
        waiting_.end() - 1, FinishReason::kError,
        {ErrorKind::kOutOfMemory,
         fmt::format("a sequence of {} tokens takes {} MB of keys and values, and there is room for {} MB: "
                     "ask for fewer tokens or a shorter context",
                     event.plan.capacity, bytes >> 20, options_.kv_limit >> 20)});
    return;
  }
  AdmitWaiting();
  if (waiting_.size() > size_t(options_.max_queued))
    EndWaiting(
        waiting_.end() - 1, FinishReason::kError,
        {ErrorKind::kBusy, fmt::format("{} requests wait already: try again later", options_.max_queued)});
}

void Scheduler::Handle(const Cancelled& event) {
  const auto at = std::ranges::find(waiting_, event.request, &Waiting::id);
  if (at != waiting_.end()) return EndWaiting(at, FinishReason::kCancelled);
  if (const auto live = live_.find(event.request); live != live_.end())
    End(live->second, FinishReason::kCancelled);
}

void Scheduler::Handle(const Stopped& event) {
  const auto live = live_.find(event.request);
  if (live == live_.end()) return;
  if (event.failure) return End(live->second, FinishReason::kError, *event.failure);
  End(live->second, FinishReason::kStop);
}

void Scheduler::Handle(const Tick& event) {
  PD_CHECK(event.now >= now_);
  now_ = event.now;
  const auto late = [&](const Waiting& request) {
    return request.of->timeout_ms > 0 && request.arrived + request.of->timeout_ms <= now_;
  };
  for (size_t i = waiting_.size(); i-- > 0;)
    if (late(waiting_[i])) EndWaiting(waiting_.begin() + ptrdiff_t(i), FinishReason::kTimeout);
  std::vector<RequestId> ids;  // to end a request may erase it
  for (const auto& [id, live] : live_)
    if (!live.ended && late(live)) ids.push_back(id);
  for (RequestId id : ids) End(Get(id), FinishReason::kTimeout);
}

void Scheduler::Handle(const Done& event) {
  std::optional<Job>& running = running_.at(size_t(event.lane));
  PD_CHECK(running);
  const Job job = *std::exchange(running, std::nullopt);
  std::visit([&](const auto& j) { Settle(j, event); }, job);
}

void Scheduler::Settle(const OpenSlot& job, const Done& done) {
  Live& live = Get(job.request);
  live.decode_lane_busy = false;
  if (const Failure* failure = FailureOf(done)) return End(live, FinishReason::kError, *failure);
  live.slot = std::get<SlotId>(done.result);
  StartDecodeWhenFilled(live);
}

void Scheduler::Settle(const PrefillChunk& job, const Done& done) {
  Live& live = Get(job.request);
  live.chunk_runs = false;
  if (live.ended || !live.unit)
    return EraseWhenFree(live);  // an import failed meanwhile: nobody waits for it
  live.stats.prefill_ms += done.ms;
  const Failure* failure = FailureOf(done);
  if (!failure) {
    live.stats.prefill_tokens += job.count;
    const Chunk& chunk = std::get<Chunk>(done.result);
    live.ready.push_back(chunk);
    Keep(live, chunk);
  } else if (failure->kind == ErrorKind::kUnsupported && live.of->prefill_is_named) {
    End(live, FinishReason::kError, *failure);
  } else {
    FallBack(live, failure->message);
  }
}

void Scheduler::Settle(const EndPrefill& job, const Done&) {
  Live& live = Get(job.request);
  live.session = live.chunk_runs = false;
  ReleaseSession(live);
  EraseWhenFree(live);
}

void Scheduler::Settle(const ImportSegment& job, const Done& done) {
  Live& live = Get(job.request);
  live.decode_lane_busy = false;
  if (const Failure* failure = FailureOf(done)) {
    live.ready.clear();
    FallBack(live, failure->message);
  } else {
    live.filled += job.segment.count();
    live.stats.handoff_ms += done.ms;
    if (!live.ended) {
      live.stats.handoff_bytes += live.ready.front().bytes;
      live.ready.pop_front();
    }
  }
  StartDecodeWhenFilled(live);
  EraseWhenFree(live);
}

void Scheduler::Settle(const SubmitStep&, const Done& done) {
  uncollected_.back().ms = done.ms;
  const Failure* failure = FailureOf(done);
  if (!failure) return;
  const Step step = std::move(uncollected_.back());
  uncollected_.pop_back();
  FailStep(step, *failure);
}

void Scheduler::Settle(const CollectStep&, const Done& done) {
  const Step step = std::move(uncollected_.front());
  uncollected_.pop_front();
  if (const Failure* failure = FailureOf(done)) return FailStep(step, *failure);
  if (step.prompt > 0) {
    Live& live = Get(step.request[0]);
    --live.uncollected;
    live.filled += step.prompt;
    live.stats.tail_tokens += step.prompt;
    live.stats.tail_ms += step.ms + done.ms;
    StartDecodeWhenFilled(live);
    return EraseWhenFree(live);
  }
  const auto& rows = std::get<std::vector<SampledRow>>(done.result);
  PD_CHECK(rows.size() == step.request.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    Live& live = Get(step.request[i]);
    PD_CHECK(rows[i].slot == live.slot);
    --live.uncollected;
    if (!live.ended) TakeSample(live, rows[i].sampled);
    EraseWhenFree(live);
  }
}

// What the device cannot give is not kept, nor is what follows it.
void Scheduler::Settle(const ExportSegment& job, const Done& done) {
  Live& live = Get(job.request);
  live.decode_lane_busy = false;
  if (const auto* chunk = std::get_if<Chunk>(&done.result)) {
    Keep(live, *chunk);
  } else {
    live.kept = INT_MAX;
  }
}

void Scheduler::Settle(const TruncateSlot& job, const Done&) { Get(job.request).decode_lane_busy = false; }

void Scheduler::Settle(const CloseSlot& job, const Done&) {
  Live& live = Get(job.request);
  live.decode_lane_busy = false;
  live.slot.reset();
  EraseWhenFree(live);
}

// ---- requests ----

Scheduler::Live& Scheduler::Get(RequestId id) {
  const auto at = live_.find(id);
  PD_CHECK(at != live_.end());
  return at->second;
}

// The head of the queue waits until there is room for it: a large request is not passed by small ones for
// ever.
void Scheduler::AdmitWaiting() {
  while (!waiting_.empty() && live_.size() < size_t(options_.max_running) && Admit(waiting_.front()))
    waiting_.pop_front();
}

bool Scheduler::Admit(const Waiting& waiting) {
  Live live;
  static_cast<Waiting&>(live) = waiting;
  live.goal = int(waiting.of->prompt.size()) - 1;
  const SlotRoom room = RoomWith(waiting.plan.capacity);
  if (room.bytes + session_bytes_ > options_.kv_limit) return false;

  if (options_.cache) UseCache(live);

  PrefillChoice choice{std::nullopt, waiting.of->prefill_chunk, {}};
  if (live.prompt_left() > 0) choice = Choose(live);
  live.chunk = std::max(choice.chunk, 1);
  live.unit = choice.unit;
  SetReach(live);
  if (live.direct()) live.unit.reset();
  if (live.unit) {
    live.session_bytes = options_.prefill[*live.unit].kv_bytes_per_token * size_t(live.goal);
    const size_t slot = options_.kv_bytes_per_token * size_t(waiting.plan.capacity);
    if (slot + live.session_bytes > options_.kv_limit) {  // there will never be room for both
      live.unit.reset();
      live.session_bytes = 0;
      live.stats.fallback = "there is no room for a prefill session";
    } else if (room.bytes + session_bytes_ + live.session_bytes > options_.kv_limit) {
      return false;
    }
  }
  if (live.unit) live.stats.prefill_device = options_.prefill[*live.unit].name;
  live.stats.prefill_why = choice.why;
  live.stats.queued_ms = now_ - live.arrived;
  slot_room_ = room;
  session_bytes_ += live.session_bytes;
  live_.emplace(live.id, std::move(live));
  return true;
}

Scheduler::SlotRoom Scheduler::RoomWith(int capacity) const {
  SlotRoom room = slot_room_;
  room.most = std::max(room.most, ++room.slots);
  room.longest = std::max(room.longest, capacity);
  room.bytes = options_.even_slots ? options_.kv_bytes_per_token * size_t(room.most) * size_t(room.longest)
                                   : room.bytes + options_.kv_bytes_per_token * size_t(capacity);
  return room;
}

// Before any device was asked for tokens of the prompt that the cache does not have: more may be there than
// the last time.
void Scheduler::UseCache(Live& live) {
  PrefixCache::Hit hit =
      options_.cache->Find({live.of->prompt.data(), size_t(live.goal)}, live.plan.variant.rope);
  if (hit.tokens <= live.computed) return;
  for (const KvSegment& segment : hit.segments) {
    const int end = segment.first() + segment.count(), begin = std::max(segment.first(), live.computed);
    if (begin >= end) continue;
    const KvSegment part = Slice(segment, begin, end - begin);
    live.ready.push_back({part, options_.cache->BytesOf(part)});
  }
  live.stats.cached_tokens = live.computed = live.kept = hit.tokens;
  SetReach(live);
  live.prefix = std::move(hit.segments);
}

// To the cache, if it continues what the cache has.
void Scheduler::Keep(Live& live, const Chunk& chunk) {
  const int first = chunk.segment.first(), end = first + chunk.segment.count();
  if (!options_.cache || live.kept != first) return;
  std::vector<TokenId> tokens = live.of->prompt;
  tokens.insert(tokens.end(), live.tokens.begin(), live.tokens.end());
  PD_CHECK(end <= int(tokens.size()));
  options_.cache->Insert({tokens.data(), size_t(end)}, first, chunk.segment);
  live.kept = end;
  for (auto& [id, other] : live_)
    if (!other.ended && !other.session && other.computed == other.stats.cached_tokens) UseCache(other);
}

PrefillChoice Scheduler::Choose(const Live& live) const {
  if (!options_.choose) {
    PrefillChoice choice{std::nullopt, live.of->prefill_chunk, {}};
    if (!options_.prefill.empty()) choice.unit = 0;
    return choice;
  }
  PrefillQuestion question{live.id, live.computed, live.prompt_left(), live.of->prefill_chunk, 0, {}};
  question.queued.resize(options_.prefill.size() + 1);
  for (const auto& [id, other] : live_) {
    if (other.ended) continue;
    question.decoding += other.decoding;
    const size_t unit = other.direct() ? options_.prefill.size() : *other.unit;
    if (other.prompt_left() > 0) question.queued[unit].push_back(other.prompt_left());
  }
  question.running.resize(options_.prefill.size() + 1);
  for (size_t lane = 0; lane < running_.size(); ++lane) {
    if (!running_[lane]) continue;
    const double ms = now_ - running_since_[lane];
    if (const auto* chunk = std::get_if<PrefillChunk>(&*running_[lane])) {
      question.running[chunk->unit] = {chunk->first, chunk->count, ms};
    } else if (const auto* step = std::get_if<SubmitStep>(&*running_[lane]); step && step->sample.empty()) {
      question.running.back() = {step->pos.front(), int(step->pos.size()), ms};
    }
  }
  return options_.choose(question);
}

void Scheduler::StartDecodeWhenFilled(Live& live) {
  if (live.ended || live.decoding || !live.slot || live.filled < live.goal) return;
  live.decoding = true;
  live.last_step = steps_;  // behind those that wait already
  if (live.plan.max_tokens == 0) End(live, FinishReason::kLength);
}

void Scheduler::TakeSample(Live& live, const Sampled& sampled) {
  if (live.tokens.empty()) live.stats.first_token_ms = now_ - live.arrived;
  live.tokens.push_back(sampled.token);
  live.stats.decode_tokens = int(live.tokens.size());
  live.stats.decode_ms = now_ - live.decode_began;
  if (std::ranges::find(live.of->end_tokens, sampled.token) != live.of->end_tokens.end())
    return End(live, FinishReason::kStop);
  notices_.push_back(TokenOut{live.id, sampled});
  if (int(live.tokens.size()) == live.plan.max_tokens) End(live, FinishReason::kLength);
}

// What the unit has computed and the slot does not hold yet is still good.
void Scheduler::FallBack(Live& live, const std::string& why) {
  if (live.ended) return;
  live.stats.fallback = why;
  live.unit.reset();
  if (!live.session) ReleaseSession(live);
  live.computed = live.filled;
  for (const Chunk& chunk : live.ready) live.computed += chunk.segment.count();
  live.stats.cached_tokens = std::min(live.stats.cached_tokens, live.computed);
}

void Scheduler::FailStep(const Step& step, const Failure& failure) {
  for (RequestId id : step.request) {
    Live& live = Get(id);
    --live.uncollected;
    End(live, FinishReason::kError, failure);
  }
}

void Scheduler::End(Live& live, FinishReason reason, const Failure& failure) {
  if (!live.ended) {
    live.ended = true;
    live.finished = reason == FinishReason::kStop || reason == FinishReason::kLength;
    live.ready.clear();
    live.prefix.clear();
    live.stats.total_ms = now_ - live.arrived;
    notices_.push_back(Ended{live.id, {live.tokens, reason, failure, live.stats}});
  }
  EraseWhenFree(live);
}

void Scheduler::EndWaiting(std::deque<Waiting>::iterator at, FinishReason reason, const Failure& failure) {
  RequestStats stats;
  stats.queued_ms = stats.total_ms = now_ - at->arrived;
  notices_.push_back(Ended{at->id, {{}, reason, failure, stats}});
  waiting_.erase(at);
}

void Scheduler::SetReach(Live& live) const {
  if (!live.unit) return;
  const auto& reach = options_.prefill.at(*live.unit).reach;
  live.reach = std::min(live.goal, reach ? reach(live.computed) : INT_MAX);
}

void Scheduler::ReleaseSession(Live& live) { session_bytes_ -= std::exchange(live.session_bytes, 0); }

void Scheduler::ReleaseSlot(const Live& live) {
  if (--slot_room_.slots == 0) {
    slot_room_ = {};
  } else if (!options_.even_slots) {
    slot_room_.bytes -= options_.kv_bytes_per_token * size_t(live.plan.capacity);
  }
}

// `live` may be gone afterwards.
void Scheduler::EraseWhenFree(Live& live) {
  if (!live.ended || live.slot || live.decode_lane_busy || live.session || live.uncollected > 0) return;
  ReleaseSession(live);
  ReleaseSlot(live);
  live_.erase(live.id);
}

// ---- jobs ----

std::optional<Job> Scheduler::Next(LaneId lane) {
  std::optional<Job>& running = running_.at(size_t(lane));
  if (running) return std::nullopt;
  std::optional<Job> job = NextCleanup(lane);
  if (!job) job = lane == options_.decode_lane ? NextOnDecodeLane() : NextChunk(lane);
  running = job;
  running_since_[size_t(lane)] = now_;
  return job;
}

// What frees memory.
std::optional<Job> Scheduler::NextCleanup(LaneId lane) {
  for (auto& [id, live] : live_) {
    if (live.session && !live.chunk_runs && (live.ended || live.direct())) {
      const size_t unit = live.session_unit;
      if (options_.prefill[unit].lane == lane) {
        live.chunk_runs = true;  // nothing else may use the session
        return EndPrefill{id, unit};
      }
    }
    if (lane == options_.decode_lane && live.ended && live.slot && !live.decode_lane_busy &&
        live.uncollected == 0 && !WantsExport(live)) {
      live.decode_lane_busy = true;
      return CloseSlot{id, *live.slot};
    }
  }
  return std::nullopt;
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
  for (auto& [id, live] : live_)
    if (!live.ended && !live.slot && !live.decode_lane_busy) {
      live.decode_lane_busy = true;
      return OpenSlot{id, live.plan.capacity, live.plan.variant};
    }
  return std::nullopt;
}

std::optional<Job> Scheduler::NextHeavy() {
  std::optional<Job> job = NextImport();
  if (!job) job = NextExport();
  if (!job) job = NextChunk(options_.decode_lane);
  if (job) heavy_is_due_ = false;
  return job;
}

std::optional<Job> Scheduler::NextImport() {
  for (auto& [id, live] : live_)
    if (!live.ended && live.slot && !live.decode_lane_busy && !live.ready.empty()) {
      live.decode_lane_busy = true;
      return ImportSegment{id, *live.slot, live.ready.front().segment};
    }
  return std::nullopt;
}

// A text that was cut short is not worth more than its prompt.
bool Scheduler::WantsExport(const Live& live) const {
  if (!options_.cache || !live.slot || live.kept == INT_MAX) return false;
  if (live.ended && !live.finished) return false;
  const int unkept = live.settled() - live.kept;
  return unkept >= (live.ended ? kWorthKeeping : kExport);
}

// First what steps that ran ahead left in the slot goes, so that it holds the text and nothing else.
std::optional<Job> Scheduler::NextExport() {
  for (auto& [id, live] : live_) {
    if (live.decode_lane_busy || !WantsExport(live) || (live.ended && live.uncollected > 0)) continue;
    live.decode_lane_busy = true;
    if (live.ended && live.goal + live.submitted > live.settled()) {
      live.submitted = int(live.tokens.size());
      return TruncateSlot{id, *live.slot, live.settled()};
    }
    return ExportSegment{id, *live.slot, live.kept, std::min(live.settled() - live.kept, kExport)};
  }
  return std::nullopt;
}

bool Scheduler::CanComputeOn(const Live& live, LaneId lane) const {
  if (live.ended || live.prompt_left() == 0 || live.chunk_runs) return false;
  if (live.direct())  // in the slot itself, where the next token's place must be free
    return lane == options_.decode_lane && live.slot && live.filled == live.computed;
  // What the cache gave waits in `ready` too, and costs no memory.
  const auto own = std::ranges::count_if(
      live.ready, [&](const Chunk& chunk) { return chunk.segment.first() >= live.stats.cached_tokens; });
  return options_.prefill[*live.unit].lane == lane && size_t(own) < kMaxReady;
}

std::optional<Job> Scheduler::NextChunk(LaneId lane) {
  Live *oldest = nullptr, *shortest = nullptr;
  for (auto& [id, live] : live_) {
    if (!CanComputeOn(live, lane)) continue;
    if (!oldest) oldest = &live;
    if (!shortest || live.prompt_left() < shortest->prompt_left()) shortest = &live;
  }
  if (!oldest) return std::nullopt;
  int& since_oldest = chunks_since_oldest_[size_t(lane)];
  Live& chosen = ++since_oldest >= kOldestEvery ? *oldest : *shortest;
  if (&chosen == oldest) since_oldest = 0;
  return chosen.direct() ? DirectChunk(chosen) : ChunkOn(chosen);
}

Job Scheduler::ChunkOn(Live& live) {
  PrefillChunk job{live.id, *live.unit, live.of, live.computed, 0, options_.cache != nullptr, {}};
  job.count = std::min(live.chunk, live.reach - live.computed);
  if (!live.session) {
    live.session = true;
    live.session_unit = *live.unit;
    job.begin = PrefillChunk::Begin{live.goal, live.plan.variant, std::exchange(live.prefix, {})};
  }
  live.chunk_runs = true;
  live.computed += job.count;
  SetReach(live);
  return job;
}

Job Scheduler::DirectChunk(Live& live) {
  const int count = std::min({live.chunk, options_.max_rows, live.prompt_left()});
  const auto ids = live.of->prompt.begin() + live.computed;
  SubmitStep job;
  job.request.assign(size_t(count), live.id);
  job.ids.assign(ids, ids + count);
  job.pos.resize(size_t(count));
  std::iota(job.pos.begin(), job.pos.end(), live.computed);
  job.slot.assign(size_t(count), *live.slot);
  uncollected_.push_back({{live.id}, false, count, 0});
  ++live.uncollected;
  live.computed += count;
  return job;
}

std::optional<Job> Scheduler::NextStep() {
  std::vector<Live*> rows;
  for (auto& [id, live] : live_)
    if (live.decoding && !live.ended && live.submitted < live.plan.max_tokens) rows.push_back(&live);
  if (rows.empty()) return std::nullopt;
  if (rows.size() > size_t(options_.max_rows)) {
    std::ranges::stable_sort(rows, {}, &Live::last_step);
    rows.resize(size_t(options_.max_rows));
  }
  SubmitStep job;
  Step step;
  ++steps_;
  for (Live* live : rows) {
    const std::vector<TokenId>& prompt = live->of->prompt;
    SubmitStep::Sampling sampling{live->of->sample, {}, live->of};
    sampling.spec.draw = uint64_t(live->submitted);
    if (!sampling.spec.penalties.Off()) {
      sampling.context = prompt;
      sampling.context.insert(sampling.context.end(), live->tokens.begin(), live->tokens.end());
    }
    step.request.push_back(live->id);
    step.first |= live->submitted == 0;
    const TokenId known = live->tokens.empty() ? prompt.back() : live->tokens.back();
    job.request.push_back(live->id);
    job.ids.push_back(live->uncollected > 0 ? kLastSampled : known);
    job.pos.push_back(live->goal + live->submitted);
    job.slot.push_back(*live->slot);
    job.sample.push_back(std::move(sampling));
    if (live->submitted++ == 0) live->decode_began = now_;
    ++live->uncollected;
    live->last_step = steps_;
  }
  uncollected_.push_back(std::move(step));
  heavy_is_due_ = true;
  return job;
}

}  // namespace pd
