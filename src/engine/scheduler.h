// Decides what every lane does next. Pure: no threads, no clock, no devices; events in, jobs out.
#pragma once
#include <climits>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/job.h"
#include "kv/prefix_cache.h"

namespace pd {

// A prefill device as the scheduler sees it.
struct PrefillUnit {
  std::string name;
  LaneId lane = 0;
  // PrefillDevice::Reach; empty: it takes every chunk. Where it ends, the rest is the decode device's.
  std::function<int(int first)> reach = {};
  size_t kv_bytes_per_token = 0;
};

// A prompt that needs a device: `count` tokens after `first` that are there already.
struct PrefillQuestion {
  RequestId request = 0;
  int first = 0, count = 0;
  int chunk = 0;     // that the request asks for
  int decoding = 0;  // requests that produce text
  // What is left of each prompt that a unit reads or is to read, in tokens; the last entry: the decode
  // device.
  std::vector<std::vector<int>> queued = {};
  // The chunk that each of them computes now, which `queued` does not count; none: count is 0.
  struct Running {
    int first = 0, count = 0;
    double for_ms = 0;  // so far
  };
  std::vector<Running> running = {};
};
struct PrefillChoice {
  std::optional<size_t> unit = 0;  // none: the decode device itself
  int chunk = 512;                 // tokens at a time
  std::string why = {};
};

struct SchedulerOptions {
  int lanes = 1;
  LaneId decode_lane = 0;
  int max_rows = 1;        // of one decode step, prompt rows on the decode device included
  bool runs_ahead = true;  // these three: DeviceInfo's of the decode device
  size_t kv_bytes_per_token = 0;
  bool even_slots = false;
  std::vector<PrefillUnit> prefill;
  // Bytes of keys and values that admitted requests may come to: slots and prefill sessions, both when full.
  size_t kv_limit = SIZE_MAX;
  int max_queued = INT_MAX;  // requests that wait for room; more are turned away with kBusy
  int max_running = 256;     // requests that hold room
  // Where prompts begin that were computed before, and where they are kept; may be nullptr. Looked up when a
  // request gets room and again while it waits for its first chunk: it profits from those before it.
  PrefixCache* cache = nullptr;
  // Empty: the first unit, or the decode device when there is none.
  std::function<PrefillChoice(const PrefillQuestion&)> choose = {};
};

// One thread's. The rules:
// - Requests get room in order of arrival: a slot for all their tokens, and a prefill session.
// - A lane runs one job at a time. The decode lane has two uncollected steps at most, so that the device has
//   the next before the host has read the last; but the step with a request's first token is read at once,
//   and so is every step of a device that computes in Submit.
// - A step takes a row of every request that can give one; when there are too many, those that waited
//   longest.
// - On the decode lane a step comes first. Between two steps at most one heavy job goes: an import, an export
//   or a chunk of a prompt. So text stalls for one of them at most.
// - The shortest rest of a prompt is computed first, but every kOldestEvery-th chunk is the oldest request's.
// - A request that ends frees what it holds as soon as no job uses it; nothing else runs for it.
// - When a prefill device or an import fails, the decode device computes the rest of the prompt itself.
class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);

  void On(const Event& event);
  // What the lane is to do now; nothing while it runs a job, or when there is nothing to do. A job that is
  // returned counts as running until its Done.
  std::optional<Job> Next(LaneId lane);
  // What there is to say since the last call, in order.
  std::vector<Notice> TakeNotices();

  bool idle() const { return live_.empty() && waiting_.empty(); }
  size_t kv_bytes() const { return slot_room_.bytes + session_bytes_; }  // reserved now
  // The earliest time at which a request times out; a Tick at or after it ends the request.
  std::optional<double> NextTimeout() const;

  static constexpr int kOldestEvery = 4;
  static constexpr size_t kMaxReady = 2;  // chunks of a request that wait for their import
  // Tokens of the decode device's own that go to the cache at a time: less than a ring of keys and values
  // holds. At the end of a text, what is left of at least kWorthKeeping tokens.
  static constexpr int kExport = 256, kWorthKeeping = 16;

 private:
  struct Waiting {
    RequestId id = 0;
    std::shared_ptr<const Request> of;
    RequestPlan plan;
    double arrived = 0;
  };

  // A request that holds room.
  struct Live : Waiting {
    RequestStats stats;
    size_t session_bytes = 0;  // reserved
    bool ended = false;
    bool finished = false;  // and its text is whole

    // The prompt without its last token: `goal` tokens.
    int goal = 0;
    std::optional<size_t> unit;  // none: the decode device computes what is left
    int reach = 0;               // where the unit's next chunk must end
    int chunk = 0;
    int computed = 0;               // asked of a device
    int filled = 0;                 // in the slot
    std::deque<Chunk> ready;        // to be imported, in order of position
    std::vector<KvSegment> prefix;  // what the cache had; the first of `ready` too
    int kept = 0;                   // tokens that the cache has
    bool session = false;           // open on session_unit's lane
    size_t session_unit = 0;
    bool chunk_runs = false;  // or the end of its session

    std::optional<SlotId> slot;
    bool decode_lane_busy = false;  // runs a job for this request other than a step

    bool decoding = false;
    int submitted = 0;    // rows of text
    int uncollected = 0;  // steps that hold a row of it
    uint64_t last_step = 0;
    double decode_began = 0;
    std::vector<TokenId> tokens;

    // Tokens in the slot that the host knows and no step is about to give.
    int settled() const { return decoding ? goal + int(tokens.size()) : filled; }
    int prompt_left() const { return goal - computed; }
    bool direct() const { return !unit || computed >= reach; }
  };

  // What the slots of admitted requests come to.
  struct SlotRoom {
    int slots = 0;              // now
    int most = 0, longest = 0;  // slots, and tokens of one, since there was none
    size_t bytes = 0;
  };

  struct Step {
    std::vector<RequestId> request;
    bool first = false;  // some request's first token is among them
    int prompt = 0;      // rows of a prompt, or 0
    double ms = 0;       // that Submit took
  };

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

  Live& Get(RequestId id);
  void AdmitWaiting();
  bool Admit(const Waiting& waiting);
  SlotRoom RoomWith(int capacity) const;
  void ReleaseSlot(const Live& live);
  PrefillChoice Choose(const Live& live) const;
  void StartDecodeWhenFilled(Live& live);
  void TakeSample(Live& live, const Sampled& sampled);
  void FallBack(Live& live, const std::string& why);
  void FailStep(const Step& step, const Failure& failure);
  void End(Live& live, FinishReason reason, const Failure& failure = {});
  void EndWaiting(std::deque<Waiting>::iterator at, FinishReason reason, const Failure& failure = {});
  void UseCache(Live& live);
  void Keep(Live& live, const Chunk& chunk);
  bool WantsExport(const Live& live) const;
  void SetReach(Live& live) const;
  void ReleaseSession(Live& live);
  void EraseWhenFree(Live& live);

  std::optional<Job> NextCleanup(LaneId lane);
  std::optional<Job> NextOpen();
  std::optional<Job> NextOnDecodeLane();
  std::optional<Job> NextHeavy();
  std::optional<Job> NextImport();
  std::optional<Job> NextExport();
  std::optional<Job> NextChunk(LaneId lane);
  std::optional<Job> NextStep();
  bool CanComputeOn(const Live& live, LaneId lane) const;
  Job ChunkOn(Live& live);
  Job DirectChunk(Live& live);

  const SchedulerOptions options_;
  double now_ = 0;
  std::deque<Waiting> waiting_;
  std::map<RequestId, Live> live_;           // ids ascend, as good as in order of arrival
  std::vector<std::optional<Job>> running_;  // by lane
  std::vector<double> running_since_;        // likewise
  std::vector<int> chunks_since_oldest_;     // likewise
  std::deque<Step> uncollected_;
  std::vector<Notice> notices_;
  SlotRoom slot_room_;
  size_t session_bytes_ = 0;
  bool heavy_is_due_ = false;  // a step went since the last heavy job of the decode lane
  uint64_t steps_ = 0;
};

}  // namespace pd
