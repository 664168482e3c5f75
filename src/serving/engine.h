// Serves many requests at once on one model: lanes, a scheduler, and the thread that connects them.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "serving/disk_cache.h"
#include "serving/energy_ledger.h"
#include "serving/lane.h"
#include "serving/scheduler.h"
#include "serving/timeline.h"

namespace pd {

struct EngineDevices {
  // May be empty: then the decode device computes prompts itself, straight into the slots. A prefill device
  // on the decode device's silicon would hold keys and values twice and copy them, and save nothing.
  std::vector<std::unique_ptr<PrefillDevice>> prefill;
  std::unique_ptr<DecodeDevice> decode;
};

struct EngineOptions {
  size_t kv_limit = SIZE_MAX;  // as in SchedulerOptions, like the next three
  int max_queued = 1024;
  int max_running = 256;
  std::function<PrefillChoice(const PrefillQuestion&)> choose = {};
  // Size limit of the prefix cache, which keeps keys and values of earlier requests; 0: no cache.
  size_t prefix_cache_bytes = 0;
  // Folder that keeps the cache over a restart, and its size limit; empty: none.
  std::filesystem::path disk_cache = {};
  size_t disk_cache_bytes = size_t(4) << 30;
  // Called on the engine's thread, one line each, with what went wrong and failed no request: files of the
  // disk cache that are ignored, slots and sessions that did not close.
  std::function<void(const std::string&)> warn = {};
  // Read before and after jobs, on the engine's thread; empty: requests have no joules.
  std::vector<std::shared_ptr<PowerMeter>> meters = {};
  // Called on the engine's thread with every job a lane ran; times in ms since the engine began.
  std::function<void(const Span&)> observe = {};
  // Called last on the thread of every lane, when its devices are gone. Must not throw.
  std::function<void()> leave_lane = {};
};

// Called on the engine's thread: a callback that waits holds up every request. Callbacks may call Submit.
struct EventSink {
  // Each token in order, end tokens excepted. False ends the request with kStop, an exception with kError.
  // May be empty.
  std::function<bool(const Sampled&)> token = {};
  std::function<void(RequestResult)> end = {};  // called once, last; must not throw
};

// Any thread may call Submit and Cancel.
class Engine {
 public:
  // Devices that overlap share a lane. All hold the model of `spec`. Unit i of `options.choose` is
  // devices.prefill[i].
  Engine(ModelSpec spec, EngineDevices devices, EngineOptions options = {});
  ~Engine();  // Stop(false)
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws kBadRequest as PlanRequest does, and kCancelled once stopped; then the sink is not called. Every
  // other failure, such as kBusy, is the request's end.
  RequestId Submit(Request request, EventSink sink);
  // Ends the request with kCancelled, unless it has ended already.
  void Cancel(RequestId id);
  // Accepts no more requests, and finishes or cancels those it has. Returns when every sink has had its end
  // and the devices are gone. Not thread-safe, and not to be called from a sink.
  void Stop(bool finish);

  const ModelSpec& spec() const { return spec_; }
  const DeviceInfo& decode_info() const { return decode_info_; }
  const DeviceInfo& prefill_info(size_t unit) const { return prefill_info_.at(unit); }
  size_t prefill_units() const { return prefill_info_.size(); }
  int lanes() const { return lane_count_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Submission {
    std::shared_ptr<const Request> request;
    RequestPlan plan;
    EventSink sink;
    RequestId id = 0;
  };
  struct StopAll {
    bool finish = false;
  };
  using Message = std::variant<Submission, Cancelled, Done, StopAll, DiskResult>;

  KvIdentity CacheIdentity() const;
  void Work(SchedulerOptions options);
  void LookOnDisk(Submission submission, Scheduler& scheduler);
  void Arrive(Submission submission, Scheduler& scheduler);
  void Warn(const std::vector<std::string>& warnings) const;
  void Take(Submission submission, Scheduler& scheduler);
  void Take(const Cancelled& cancelled, Scheduler& scheduler);
  void Take(const Done& done, Scheduler& scheduler);
  void Take(const StopAll& stop, Scheduler& scheduler);
  void Take(DiskResult result, Scheduler& scheduler);
  void Say(Scheduler& scheduler);
  void SayToken(const TokenOut& token, Scheduler& scheduler);
  void SayEnd(Ended ended);
  void Post(LaneId lane, Job job);
  double Now() const;

  const ModelSpec spec_;
  const EngineOptions options_;
  DeviceInfo decode_info_;
  std::vector<DeviceInfo> prefill_info_;
  int lane_count_ = 0;
  std::atomic<RequestId> next_id_ = 1;
  std::atomic<bool> stopped_ = false;
  Queue<Message> inbox_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<DiskCache> disk_;  // nullptr: none

  // Used by the engine's thread only:
  struct Reader {
    EventSink sink;
    bool enough = false;
    std::optional<Failure> failure;
  };
  std::map<RequestId, Reader> readers_;
  std::map<RequestId, Submission> loading_;  // requests that wait for the disk
  std::unique_ptr<PrefixCache> cache_;       // nullptr: none
  bool stopping_ = false, finishing_ = false;
  const Clock::time_point start_ = Clock::now();
  std::vector<Span> running_;  // by lane, for options_.observe
  EnergyLedger energy_;

  std::thread thread_;
};

}  // namespace pd
