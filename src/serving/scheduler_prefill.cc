// Prompts on their way into slots: chunks, their handoff, and the cache.
#include <algorithm>
#include <numeric>
#include <utility>

#include "serving/scheduler.h"

namespace pd {

// ---- chunks ----

// Where the next tokens of the prompt can be computed now; nullopt when they must wait, or none are left.
std::optional<LaneId> Scheduler::ChunkLane(const LiveRequest& live) const {
  if (live.ended() || live.prompt_left() == 0 || (live.session && live.session->busy)) return std::nullopt;
  if (live.direct()) {  // in the slot, which must hold all tokens before them
    if (!live.slot || live.filled != live.asked) return std::nullopt;
    return options_.decode_lane;
  }
  // What the cache gave is in `ready` too, and takes no memory of its own.
  const auto own = std::ranges::count_if(
      live.ready, [&](const Chunk& chunk) { return chunk.segment.first >= live.stats.cached_tokens; });
  if (size_t(own) >= kMaxReady) return std::nullopt;
  return options_.prefill[*live.unit].lane;
}

std::optional<Job> Scheduler::NextChunk(LaneId lane) {
  const Agenda::OnLane& agenda = agenda_.on_lane[size_t(lane)];
  if (agenda.chunk.empty()) return std::nullopt;
  int& since_oldest = lanes_[size_t(lane)].chunks_since_oldest;
  const RequestId oldest = *agenda.chunk.begin(), shortest = agenda.by_rest.begin()->second;
  const RequestId chosen = ++since_oldest >= kOldestEvery ? oldest : shortest;
  if (chosen == oldest) since_oldest = 0;
  LiveRequest& live = Get(chosen);
  return live.direct() ? ChunkInSlot(live) : ChunkOnUnit(live);
}

Job Scheduler::ChunkOnUnit(LiveRequest& live) {
  PrefillChunk job{live.id, *live.unit, live.of, live.asked, 0, options_.cache != nullptr, {}};
  job.count = std::min(live.chunk, live.reach - live.asked);
  if (!live.session) {
    live.session = LiveRequest::Session{*live.unit};
    job.begin = PrefillChunk::Begin{live.goal, live.plan.variant, std::exchange(live.prefix, {})};
  }
  live.session->busy = true;
  live.asked += job.count;
  SetReach(live);
  return job;
}

Job Scheduler::ChunkInSlot(LiveRequest& live) {
  const int count = std::min({live.chunk, options_.max_rows, live.prompt_left()});
  const auto ids = live.of->prompt.begin() + live.asked;
  SubmitStep job;
  job.request.assign(size_t(count), live.id);
  job.ids.assign(ids, ids + count);
  job.pos.resize(size_t(count));
  std::iota(job.pos.begin(), job.pos.end(), live.asked);
  job.slot.assign(size_t(count), *live.slot);
  uncollected_.push_back({{live.id}, false, count, 0});
  ++live.steps_in_flight;
  live.asked += count;
  return job;
}

void Scheduler::SetReach(LiveRequest& live) const {
  if (!live.unit) return;
  const auto& reach = options_.prefill.at(*live.unit).reach;
  live.reach = std::min(live.goal, reach ? reach(live.asked) : INT_MAX);
}

// The decode device computes the rest. Chunks that the unit has computed are still good.
void Scheduler::FallBack(LiveRequest& live, const std::string& why) {
  if (live.ended()) return;
  live.stats.fallback = why;
  live.unit.reset();
  if (!live.session) live.session_room.reset();
  live.asked = live.filled;
  for (const Chunk& chunk : live.ready) live.asked += chunk.segment.count;
  live.stats.cached_tokens = std::min(live.stats.cached_tokens, live.asked);
}

// ---- handoff ----

std::optional<Job> Scheduler::NextImport() {
  if (agenda_.import.empty()) return std::nullopt;
  const LiveRequest& live = Get(*agenda_.import.begin());
  return ImportSegment{live.id, *live.slot, live.ready.front().segment};
}

void Scheduler::StartDecodeWhenFilled(LiveRequest& live) {
  if (live.phase != LiveRequest::Phase::kPrefilling || !live.slot || live.filled < live.goal) return;
  live.phase = LiveRequest::Phase::kDecoding;
  ++decoding_;
  live.last_step = steps_;  // behind those that wait already
  if (live.plan.max_tokens == 0) End(live, FinishReason::kLength);
}

// ---- cache ----

// Before any device was asked for tokens beyond the cached ones: the cache may have more than last time.
void Scheduler::UseCache(LiveRequest& live) {
  PrefixCache::Hit hit = options_.cache->Find({live.of->prompt.data(), size_t(live.goal)}, live.plan.variant);
  if (hit.tokens <= live.asked) return;
  for (const KvSegment& segment : hit.segments) {
    const int end = segment.first + segment.count, begin = std::max(segment.first, live.asked);
    if (begin >= end) continue;
    const KvSegment part = Slice(segment, begin, end - begin);
    live.ready.push_back({part, options_.cache->BytesOf(part)});
  }
  live.stats.cached_tokens = live.asked = hit.tokens;
  live.kept = hit.tokens;
  SetReach(live);
  live.prefix = std::move(hit.segments);
}

// Gives the chunk to the cache if it continues what the cache has, and shares it with those that wait.
void Scheduler::Keep(LiveRequest& live, const Chunk& chunk) {
  const int first = chunk.segment.first, end = first + chunk.segment.count;
  if (!options_.cache || live.kept != first) return;
  std::vector<TokenId> tokens = live.of->prompt;
  tokens.insert(tokens.end(), live.tokens.begin(), live.tokens.end());
  PD_CHECK(end <= int(tokens.size()));
  options_.cache->Insert({tokens.data(), size_t(end)}, first, chunk.segment);
  live.kept = end;
  for (const RequestId id : agenda_.may_use_cache)
    if (id != live.id) UseCache(Get(id));
}

// In pieces of kExport; but a prompt as soon as it is complete, for the requests that begin alike, and a text
// at its end. A text that was cut short is not worth more than its prompt.
bool Scheduler::WantsExport(const LiveRequest& live) const {
  if (!options_.cache || !live.slot || !live.kept) return false;
  if (live.ended() && !live.whole) return false;
  const bool complete = live.ended() || (live.filled == live.goal && *live.kept < live.goal);
  return live.settled() - *live.kept >= (complete ? kWorthKeeping : kExport);
}

// A slot that holds more than the text, from steps that ran ahead, is cut first.
std::optional<Job> Scheduler::NextExport() {
  if (agenda_.export_tokens.empty()) return std::nullopt;
  LiveRequest& live = Get(*agenda_.export_tokens.begin());
  if (live.ended() && live.goal + live.submitted > live.settled()) {
    live.submitted = int(live.tokens.size());
    return TruncateSlot{live.id, *live.slot, live.settled()};
  }
  return ExportSegment{live.id, *live.slot, *live.kept, std::min(live.settled() - *live.kept, kExport)};
}

}  // namespace pd
