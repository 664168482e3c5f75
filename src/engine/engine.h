// Many requests at once on one model: lanes, a scheduler, and the thread between them.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "engine/disk_cache.h"
#include "engine/energy.h"
#include "engine/lane.h"
#include "engine/scheduler.h"
#include "engine/timeline.h"

namespace pd {

struct EngineDevices {
  std::vector<std::unique_ptr<PrefillDevice>> prefill;
  std::unique_ptr<DecodeDevice> decode;
};

struct EngineOptions {
  size_t kv_limit = SIZE_MAX;  // as in SchedulerOptions, like the next three
  int max_queued = 1024;
  int max_running = 256;
  std::function<PrefillChoice(const PrefillQuestion&)> choose = {};
  // Bytes of keys and values of earlier requests that are kept for those that begin alike; 0: none.
  size_t prefix_cache_bytes = 0;
  // Where they are kept over a restart, at most disk_cache_bytes of them; empty: nowhere.
  std::filesystem::path disk_cache = {};
  size_t disk_cache_bytes = size_t(4) << 30;
  // Told about files of the disk cache that are ignored, one line each, on the engine's thread.
  std::function<void(const std::string&)> warn = {};
  // Asked before and after every job, on the engine's thread; empty: requests know no joules.
  std::vector<std::shared_ptr<PowerMeter>> meters = {};
  // Told what every lane did, on the engine's thread; times in ms since the engine began.
  std::function<void(const Span&)> observe = {};
  // Called last on the thread of every lane, when its devices are gone.
  std::function<void()> leave_lane = {};
};

// Called on the engine's thread, so that a callback that waits holds up every request. May call Submit.
struct EventSink {
  // Each token but end tokens, in order. False: enough, the request ends with kStop. What it throws ends the
  // request with kError. Empty: the tokens of the result suffice.
  std::function<bool(const Sampled&)> token = {};
  std::function<void(RequestResult)> end = {};  // once, the last call; must not throw
};

// Any thread may call Submit and Cancel.
class Engine {
 public:
  // Devices that overlap share a lane. All hold the model that `spec` describes. Unit i of `options.choose`
  // is devices.prefill[i].
  Engine(ModelSpec spec, EngineDevices devices, EngineOptions options = {});
  ~Engine();  // Stop(false)
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws kBadRequest as PlanRequest does, and kCancelled once stopped; the sink is not called then. All
  // else, kBusy when too many requests wait too, comes as the request's end.
  RequestId Submit(Request request, EventSink sink);
  // Ends the request with kCancelled; nothing happens when it has ended already.
  void Cancel(RequestId id);
  // No request is accepted any more; those that are there are finished, or cancelled. Returns when every sink
  // has seen its end and the devices are gone. One thread's, and not a sink.
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

  void Work(SchedulerOptions options);
  void LookOnDisk(Submission submission, Scheduler& scheduler);
  void Arrive(Submission submission, Scheduler& scheduler);
  void Warn(const std::vector<std::string>& warnings) const;
  LaneId LaneOf(const PhysicalDevice& device, std::vector<PhysicalDevice>& lanes) const;
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

  // The engine thread's:
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
