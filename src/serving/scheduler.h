// Decides what every lane does next. Pure: no threads, no clock, no devices; events in, jobs out.
#pragma once
#include <climits>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/prefix_cache.h"
#include "serving/job.h"
#include "serving/kv_room.h"
#include "serving/live_request.h"

namespace pd {

// A prefill device as the scheduler sees it.
struct PrefillUnit {
  std::string name;
  LaneId lane = 0;
  // PrefillDevice::Reach; empty: no limit. The decode device computes what lies beyond it.
  std::function<int(int first)> reach = {};
  SequenceBytes session_bytes = {};
};

// A prompt that needs a device: `count` tokens from position `first` on.
struct PrefillQuestion {
  RequestId request = 0;
  int first = 0, count = 0;
  int chunk = 0;     // that the request asks for
  int decoding = 0;  // requests that generate text now
  // For each unit, the tokens left of every prompt it computes or is to compute; the last entry is the decode
  // device's.
  std::vector<std::vector<int>> queued = {};
  // The chunk each of them computes now, which `queued` does not count; count is 0 when there is none.
  struct Running {
    int first = 0, count = 0;
    double for_ms = 0;  // so far
  };
  std::vector<Running> running = {};
};
struct PrefillChoice {
  std::optional<size_t> unit = 0;  // nullopt: the decode device itself
  int chunk = 512;                 // tokens at a time
  std::string why = {};
};

struct SchedulerOptions {
  int lanes = 1;
  LaneId decode_lane = 0;
  std::string decode_name = {};  // for RequestStats::prefill_device
  int max_rows = 1;              // of one decode step or chunk on the decode device
  bool runs_ahead = true;        // these two: DeviceInfo's of the decode device
  bool even_slots = false;
  SequenceBytes slot_bytes = {};
  std::vector<PrefillUnit> prefill;
  // Bytes of keys and values that live requests may reserve: slots and prefill sessions, each when full.
  size_t kv_limit = SIZE_MAX;
  int max_queued = INT_MAX;  // requests that wait for room; more fail with kBusy
  int max_running = 256;     // requests that hold room
  // Keys and values of earlier prompts; may be nullptr. Looked up when a request gets room, and again until a
  // device starts on its prompt: it profits from the requests before it.
  PrefixCache* cache = nullptr;
  // Empty: the first unit, or the decode device when there is none.
  std::function<PrefillChoice(const PrefillQuestion&)> choose = {};
};

// Not thread-safe. The rules:
// - Requests get room in order of arrival: a slot for all their tokens, and a prefill session when a unit
//   computes the prompt.
// - A lane runs one job at a time. The decode lane has at most two uncollected steps, so that the device has
//   the next step before the host has read the last. Two kinds of steps are collected at once: those with the
//   first token of a request, and all steps of a device that computes in Submit.
// - A step takes a row of every request that can give one. When there are too many, those go first that have
//   waited longest.
// - On the decode lane steps come first. Between two steps there is at most one heavy job: an import, an
//   export or a chunk of a prompt. So no text waits for more than one of them.
// - The prompt with the fewest tokens left is computed first, but every kOldestEvery-th chunk is of the
// oldest
//   request.
// - A request that ends gives back what it holds as soon as no job uses it. No other job runs for it, except
//   that a whole text goes to the cache.
// - When a prefill device or an import fails, the decode device computes the rest of the prompt itself.
// No event looks at all requests: each costs time by the requests it concerns.
class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void On(const Event& event);
  // The next job of the lane; nullopt while it runs one, or when there is nothing to do. The job counts as
  // running until its Done.
  std::optional<Job> Next(LaneId lane);
  // What the requests' owner is to be told since the last call, in order.
  std::vector<Notice> TakeNotices();

  bool idle() const { return live_.empty() && waiting_.empty(); }
  size_t kv_bytes() const { return room_.bytes(); }  // reserved now
  // The earliest time at which a request times out; a Tick at or after it ends the request.
  std::optional<double> NextTimeout() const;
  // How often a request was looked at, all events together: what scheduling costs, for tests.
  uint64_t looks() const { return looks_; }

  static constexpr int kOldestEvery = 4;
  static constexpr size_t kMaxReady = 2;  // chunks of a request that wait for their import
  // The decode device's own tokens go to the cache in pieces of kExport, fewer than a ring of keys and values
  // holds. At the end of a prompt and of a text the rest goes too, if it has kWorthKeeping tokens.
  static constexpr int kExport = 256, kWorthKeeping = 16;

 private:
  struct RunningJob {
    Job job;
    double since = 0;
  };
  struct LaneState {
    std::optional<RunningJob> running;
    int chunks_since_oldest = 0;
  };
  struct UncollectedStep {
    std::vector<RequestId> requests;
    bool first = false;   // holds some request's first token
    int prompt_rows = 0;  // above 0: rows of one prompt, without samples
    double submit_ms = 0;
  };

  // ---- scheduler.cc: events, and what they do to a request ----
  void Handle(const Arrived& event);
  void Handle(const Cancelled& event);
  void Handle(const Stopped& event);
  void Handle(const Done& event);
  void Handle(const Tick& event);
  void Settle(const OpenSlot& job, const Done& done);
  void Settle(const PrefillChunk& job, const Done& done);
  void Settle(const EndPrefill& job, const Done& done);
  void Settle(const ImportSegment& job, const Done& done);
  void Settle(const SubmitStep& job, const Done& done);
  void Settle(const CollectStep& job, const Done& done);
  void Settle(const ExportSegment& job, const Done& done);
  void Settle(const TruncateSlot& job, const Done& done);
  void Settle(const CloseSlot& job, const Done& done);
  LiveRequest& Get(RequestId id);
  LiveRequest* Find(RequestId id);
  void End(LiveRequest& live, FinishReason reason, const Failure& failure = {});
  void EndWaiting(const QueuedRequest& request, FinishReason reason, const Failure& failure = {});
  void Warn(const char* action, RequestId id, const Done& done);
  void RefileTouched();
  Work WorkOf(const LiveRequest& live) const;

  // ---- scheduler_admission.cc ----
  void AdmitWaiting();
  bool Admit(const QueuedRequest& waiting);
  PrefillChoice Choose(const LiveRequest& live);

  // ---- scheduler_prefill.cc: chunks, handoff and the cache ----
  std::optional<Job> NextImport();
  std::optional<Job> NextExport();
  std::optional<Job> NextChunk(LaneId lane);
  std::optional<LaneId> ChunkLane(const LiveRequest& live) const;
  Job ChunkOnUnit(LiveRequest& live);
  Job ChunkInSlot(LiveRequest& live);
  void SetReach(LiveRequest& live) const;
  void FallBack(LiveRequest& live, const std::string& why);
  void StartDecodeWhenFilled(LiveRequest& live);
  void UseCache(LiveRequest& live);
  void Keep(LiveRequest& live, const Chunk& chunk);
  bool WantsExport(const LiveRequest& live) const;

  // ---- scheduler_steps.cc: the decode lane's order, steps, slots ----
  std::optional<Job> NextOnDecodeLane();
  std::optional<Job> NextCleanup(LaneId lane);
  std::optional<Job> NextOpen();
  std::optional<Job> NextHeavy();
  std::optional<Job> NextStep();
  void AddRow(LiveRequest& live, SubmitStep& job, UncollectedStep& step);
  void TakeSample(LiveRequest& live, const Sampled& sampled);
  void FailStep(const UncollectedStep& step, const Failure& failure);

  const SchedulerOptions options_;
  double now_ = 0;
  KvRoom room_;
  WaitingLine waiting_;
  std::unordered_map<RequestId, LiveRequest> live_;
  int decoding_ = 0;                                  // requests in phase kDecoding
  std::set<std::pair<double, RequestId>> deadlines_;  // of waiting and live requests that have not ended
  Agenda agenda_;
  std::vector<RequestId> touched_;  // since they were filed last
  std::vector<LaneState> lanes_;
  std::deque<UncollectedStep> uncollected_;
  std::vector<Notice> notices_;
  bool heavy_is_due_ = false;  // a step went since the decode lane's last heavy job
  uint64_t steps_ = 0;
  uint64_t looks_ = 0;
};

}  // namespace pd
