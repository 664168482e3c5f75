// Plays the lanes for a scheduler: checks every job against the contract of the devices, and invents its
// result.
#pragma once
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "serving/scheduler.h"

namespace pd::test {

// One layer with one head of one value.
inline ModelSpec WorldSpec() {
  ModelSpec spec;
  AttentionSpec attention;
  attention.heads = attention.kv_heads = attention.head_dim = 1;
  spec.layers = {PreNormLayer({}, attention, {.hidden = 1})};
  return spec;
}

inline KvSegment ZeroSegment(int first, int count) {
  const auto memory = std::make_shared<std::vector<float>>(size_t(count) * 2);
  const auto* bytes = reinterpret_cast<const std::byte*>(memory->data());
  KvSegment segment{.first = first, .count = count};
  segment.layers.push_back(KvLayerView{bytes, bytes + size_t(count) * 4, DType::kF32, count, 1, 1});
  segment.owner = memory;
  return segment;
}

inline SequenceBytes BytesPerToken(size_t bytes) {
  return [bytes](int tokens) { return bytes * size_t(tokens); };
}

class LaneWorld {
 public:
  explicit LaneWorld(SchedulerOptions options)
      : options_(std::move(options)), scheduler(options_), running_(size_t(options_.lanes)) {}

  const std::optional<Job>& running(LaneId lane) const { return running_[size_t(lane)]; }

  // Passes the event on, then takes the jobs and notices of the scheduler.
  void On(const Event& event) {
    if (const auto* arrived = std::get_if<Arrived>(&event)) requests_[arrived->request].of = arrived->of;
    scheduler.On(event);
    Hear();
    TakeJobs();
  }

  // The token at an index of a request's text.
  std::function<TokenId(RequestId, int)> token = [](RequestId id, int index) {
    return TokenId((id * 31 + uint64_t(index) * 7) % 97);
  };

  // The job of the lane succeeds.
  void Succeed(LaneId lane, double ms = 1) {
    const Job job = *std::exchange(running_[size_t(lane)], std::nullopt);
    JobResult result = std::visit([this](const auto& j) { return Do(j); }, job);
    if (slots_.empty()) most_slots_ = 0, longest_slot_ = 0;
    On(Done{lane, std::move(result), ms});
  }
  // It fails and leaves the devices as they were before, except that what was to be closed is gone.
  void FailJob(LaneId lane, ErrorKind kind = ErrorKind::kDevice) {
    const Job job = *std::exchange(running_[size_t(lane)], std::nullopt);
    if (std::holds_alternative<CollectStep>(job)) steps_.pop_front();
    if (const auto* submit = std::get_if<SubmitStep>(&job)) Undo(*submit);
    if (const auto* close = std::get_if<CloseSlot>(&job)) slots_.erase(close->slot);
    if (const auto* end = std::get_if<EndPrefill>(&job)) sessions_.erase(end->request);
    if (slots_.empty()) most_slots_ = 0, longest_slot_ = 0;
    On(Done{lane, Failure{kind, "it broke"}, 1});
  }

  // Every request, as its owner knows it.
  struct Known {
    std::shared_ptr<const Request> of;
    std::vector<TokenId> heard;
    std::optional<RequestResult> end;
    int steps_without_row = 0, turns = 0;  // while it could have given one, and the limit
  };
  const std::map<RequestId, Known>& requests() const { return requests_; }
  size_t open_slots() const { return slots_.size(); }
  size_t open_sessions() const { return sessions_.size(); }
  size_t uncollected() const { return steps_.size(); }
  int warnings() const { return warnings_; }
  int lanes() const { return options_.lanes; }

  // Called with jobs and notices, for tests that record them.
  std::function<void(LaneId, const Job&)> on_job = [](LaneId, const Job&) {};
  std::function<void(const Notice&)> on_notice = [](const Notice&) {};

 private:
  struct Slot {
    RequestId request;
    int capacity, length = 0;
    bool sampled = false;
  };
  struct Session {
    int capacity, length;
    size_t unit;
  };

  bool Ended(RequestId id) const { return requests_.at(id).end.has_value(); }

  void Hear() {
    for (const Notice& notice : scheduler.TakeNotices()) {
      on_notice(notice);
      if (const auto* out = std::get_if<TokenOut>(&notice)) {
        Known& request = requests_.at(out->request);
        EXPECT_FALSE(request.end) << "a token after the end";
        request.heard.push_back(out->sampled.token);
      } else if (const auto* ended = std::get_if<pd::Ended>(&notice)) {
        Known& request = requests_.at(ended->request);
        EXPECT_FALSE(request.end) << "answered twice";
        request.end = ended->result;
      } else {
        ++warnings_;
      }
    }
  }

  void TakeJobs() {
    for (LaneId lane = 0; lane < options_.lanes; ++lane) {
      if (running(lane)) {
        EXPECT_FALSE(scheduler.Next(lane)) << "a second job on a lane";
        continue;
      }
      running_[size_t(lane)] = scheduler.Next(lane);
      if (const auto& job = running(lane)) {
        on_job(lane, *job);
        std::visit([&](const auto& j) { Begin(lane, j); }, *job);
      }
    }
    CheckMemory();
  }

  // Compares what the scheduler has reserved with the slots and sessions that are open or being opened.
  void CheckMemory() {
    size_t bytes = 0, slots = slots_.size();
    int longest = 0;
    for (const auto& [id, slot] : slots_) longest = std::max(longest, slot.capacity);
    for (const auto& [id, slot] : slots_) bytes += BytesOf(options_.slot_bytes, slot.capacity);
    for (const auto& [id, s] : sessions_)
      bytes += BytesOf(options_.prefill[s.unit].session_bytes, s.capacity);
    for (const auto& job : running_)
      if (job && std::holds_alternative<OpenSlot>(*job)) {
        const int capacity = std::get<OpenSlot>(*job).capacity;
        bytes += BytesOf(options_.slot_bytes, capacity);
        ++slots, longest = std::max(longest, capacity);
      }
    most_slots_ = std::max(most_slots_, slots);
    longest_slot_ = std::max(longest_slot_, longest);
    if (options_.even_slots) {
      EXPECT_LE(most_slots_ * BytesOf(options_.slot_bytes, longest_slot_), scheduler.kv_bytes());
    }
    EXPECT_LE(bytes, scheduler.kv_bytes());
    EXPECT_LE(scheduler.kv_bytes(), options_.kv_limit);
  }

  // ---- a job starts: checks ----

  void Begin(LaneId lane, const OpenSlot& job) {
    EXPECT_EQ(lane, options_.decode_lane);
    EXPECT_FALSE(Ended(job.request));
  }
  void Begin(LaneId lane, const PrefillChunk& job) {
    EXPECT_EQ(lane, options_.prefill.at(job.unit).lane);
    EXPECT_FALSE(Ended(job.request)) << "a chunk for a request that has ended";
    EXPECT_GT(job.count, 0);
    if (job.begin) {
      EXPECT_FALSE(sessions_.contains(job.request));
      int length = 0;
      for (const KvSegment& segment : job.begin->prefix) {
        EXPECT_EQ(segment.first, length);
        length += segment.count;
      }
      sessions_[job.request] = {job.begin->capacity, length, job.unit};
    }
    Session& session = sessions_.at(job.request);
    EXPECT_EQ(session.unit, job.unit);
    EXPECT_EQ(session.length, job.first);
    EXPECT_LE(job.first + job.count, session.capacity);
    const auto& reach = options_.prefill[job.unit].reach;
    EXPECT_LE(job.first + job.count, reach ? reach(job.first) : INT_MAX);
    EXPECT_LT(job.first + job.count, int(job.of->prompt.size())) << "the last token is a decode row";
  }
  void Begin(LaneId lane, const EndPrefill& job) { EXPECT_EQ(lane, options_.prefill.at(job.unit).lane); }
  void Begin(LaneId lane, const ImportSegment& job) {
    EXPECT_EQ(lane, options_.decode_lane);
    EXPECT_FALSE(Ended(job.request)) << "an import for a request that has ended";
    const Slot& slot = slots_.at(job.slot);
    EXPECT_EQ(slot.request, job.request);
    EXPECT_EQ(slot.length, job.segment.first);
    EXPECT_LE(slot.length + job.segment.count, slot.capacity);
  }
  void Begin(LaneId lane, const SubmitStep& job) {
    EXPECT_EQ(lane, options_.decode_lane);
    EXPECT_LT(steps_.size(), 2u) << "three uncollected steps";
    EXPECT_FALSE(job.ids.empty());
    EXPECT_LE(job.ids.size(), size_t(options_.max_rows));
    EXPECT_TRUE(job.sample.empty() || job.sample.size() == job.ids.size());
    for (size_t i = 0; i < job.ids.size(); ++i) {
      Slot& slot = slots_.at(job.slot[i]);
      const Known& request = requests_.at(job.request[i]);
      EXPECT_FALSE(request.end) << "a row for a request that has ended";
      EXPECT_EQ(slot.request, job.request[i]);
      EXPECT_EQ(slot.length, job.pos[i]);
      EXPECT_LT(slot.length, slot.capacity);
      const int prompt = int(request.of->prompt.size()), index = slot.length - prompt;
      EXPECT_EQ(job.sample.empty(), slot.length < prompt - 1) << "prompt rows without samples, and only they";
      if (job.ids[i] == kLastSampled) {
        EXPECT_TRUE(slot.sampled);
        EXPECT_LT(int(request.heard.size()), index + 1) << "the host knows this token";
      } else {
        EXPECT_EQ(job.ids[i],
                  index < 0 ? request.of->prompt[size_t(slot.length)] : token(job.request[i], index));
      }
      if (!job.sample.empty()) {
        EXPECT_EQ(job.sample[i].spec.draw, uint64_t(index + 1));
        slot.sampled = true;
      }
      ++slot.length;
    }
    if (!job.sample.empty()) CountRows(job);
    steps_.push_back(job);
  }
  void Begin(LaneId lane, const CollectStep&) {
    EXPECT_EQ(lane, options_.decode_lane);
    EXPECT_FALSE(steps_.empty());
  }
  void Begin(LaneId lane, const ExportSegment& job) {
    EXPECT_EQ(lane, options_.decode_lane);
    EXPECT_LE(job.first + job.count, slots_.at(job.slot).length);
  }
  void Begin(LaneId lane, const TruncateSlot& job) {
    EXPECT_EQ(lane, options_.decode_lane);
    EXPECT_LE(job.count, slots_.at(job.slot).length);
  }
  void Begin(LaneId lane, const CloseSlot& job) {
    EXPECT_EQ(lane, options_.decode_lane);
    EXPECT_TRUE(Ended(job.request));
    for (const SubmitStep& step : steps_)
      for (SlotId slot : step.slot) EXPECT_NE(slot, job.slot) << "closed under a step that uses it";
  }

  // Checks that no text waits longer than a turn of every request that was there.
  void CountRows(const SubmitStep& job) {
    const int turns = int(slots_.size()) / options_.max_rows + 2;
    for (auto& [id, slot] : slots_) {
      Known& request = requests_.at(slot.request);
      if (!slot.sampled || request.end) continue;
      request.turns = std::max(request.turns, turns);
      EXPECT_LE(++request.steps_without_row, request.turns) << "a text starves";
    }
    for (RequestId id : job.request) requests_.at(id).steps_without_row = requests_.at(id).turns = 0;
  }

  // ---- a job ends: results ----

  JobResult Do(const OpenSlot& job) {
    SlotId id = 0;
    while (slots_.contains(id)) ++id;
    slots_[id] = {job.request, job.capacity};
    return id;
  }
  JobResult Do(const PrefillChunk& job) {
    sessions_.at(job.request).length += job.count;
    return Chunk{ZeroSegment(job.first, job.count), size_t(job.count)};
  }
  JobResult Do(const EndPrefill& job) {
    sessions_.erase(job.request);
    return {};
  }
  JobResult Do(const ImportSegment& job) {
    slots_.at(job.slot).length += job.segment.count;
    return {};
  }
  JobResult Do(const SubmitStep&) { return {}; }
  JobResult Do(const CollectStep&) {
    const SubmitStep step = std::move(steps_.front());
    steps_.pop_front();
    std::vector<SampledRow> rows;
    for (size_t i = 0; i < step.sample.size(); ++i)
      rows.push_back({step.slot[i], {token(step.request[i], int(step.sample[i].spec.draw)), -1, {}}});
    return rows;
  }
  JobResult Do(const ExportSegment& job) { return Chunk{ZeroSegment(job.first, job.count), 1}; }
  JobResult Do(const TruncateSlot& job) {
    slots_.at(job.slot).length = job.count;
    return {};
  }
  JobResult Do(const CloseSlot& job) {
    slots_.erase(job.slot);
    return {};
  }

  void Undo(const SubmitStep& job) {
    for (SlotId slot : job.slot) --slots_.at(slot).length;
    steps_.pop_back();
  }

  const SchedulerOptions options_;

 public:
  Scheduler scheduler;

 private:
  std::vector<std::optional<Job>> running_;  // by lane
  std::map<RequestId, Known> requests_;
  std::map<SlotId, Slot> slots_;
  size_t most_slots_ = 0;  // open at a time, and the longest of them, since none was open
  int longest_slot_ = 0;
  std::map<RequestId, Session> sessions_;
  std::deque<SubmitStep> steps_;  // uncollected
  int warnings_ = 0;
};

}  // namespace pd::test
