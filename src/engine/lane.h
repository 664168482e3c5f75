// One physical device: a thread that owns the devices on it and runs their jobs in order.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/job.h"
#include "engine/queue.h"

namespace pd {

struct LaneDevices {
  std::unique_ptr<DecodeDevice> decode;                      // on the decode lane
  std::map<size_t, std::unique_ptr<PrefillDevice>> prefill;  // by unit of SchedulerOptions
};

// Runs jobs on the calling thread. One thread's.
class LaneWorker {
 public:
  LaneWorker(const ModelSpec& spec, LaneDevices devices) : spec_(spec), devices_(std::move(devices)) {}

  // Never throws: what went wrong is the result.
  JobResult Run(const Job& job);

 private:
  JobResult Do(const OpenSlot& job);
  JobResult Do(const PrefillChunk& job);
  JobResult Do(const EndPrefill& job);
  JobResult Do(const ImportSegment& job);
  JobResult Do(const SubmitStep& job);
  JobResult Do(const CollectStep& job);
  JobResult Do(const ExportSegment& job);
  JobResult Do(const TruncateSlot& job);
  JobResult Do(const CloseSlot& job);

  const ModelSpec& spec_;
  LaneDevices devices_;
  std::map<RequestId, std::unique_ptr<PrefillSession>> sessions_;
  std::deque<StepId> uncollected_;
};

class Lane {
 public:
  struct Options {
    LaneId id = 0;
    std::vector<int> cores;           // that its thread is bound to; empty: any
    std::function<void()> last = {};  // called on the thread when its devices are gone
  };

  // `report` is called on the lane's thread with each Done. `spec` must outlive the lane.
  Lane(const ModelSpec& spec, LaneDevices devices, Options options, std::function<void(Done)> report);
  ~Lane();  // when the jobs posted are done; devices end on the lane's thread
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // The next job, when the last one was reported.
  void Post(Job job);

 private:
  void Work(LaneWorker worker, const Options& options, const std::function<void(Done)>& report);

  Queue<std::optional<Job>> jobs_{2};  // none: the end
  std::thread thread_;
};

}  // namespace pd
