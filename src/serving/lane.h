// One lane of the engine: the devices on it, and the thread that runs their jobs in order.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "serving/job.h"
#include "serving/lane_thread.h"

namespace pd {

struct LaneDevices {
  std::unique_ptr<DecodeDevice> decode;                      // on the decode lane
  std::map<size_t, std::unique_ptr<PrefillDevice>> prefill;  // by unit of SchedulerOptions
};

// Runs jobs on the calling thread. Not thread-safe. `spec` must outlive it.
class LaneWorker {
 public:
  LaneWorker(const ModelSpec& spec, LaneDevices devices) : spec_(spec), devices_(std::move(devices)) {}

  // Never throws: an error is a Failure in the result.
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
    PhysicalDevice physical;
    std::function<void()> last = {};  // called on the thread once its devices are gone
  };

  // `report` is called on the lane's thread with each Done. `spec` must outlive the lane.
  Lane(const ModelSpec& spec, LaneDevices devices, Options options, std::function<void(Done)> report);
  // Waits for the posted jobs; the devices end on the lane's thread.
  ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // The next job; the last one must have been reported.
  void Post(Job job);

 private:
  const LaneId id_;
  const std::function<void(Done)> report_;
  std::unique_ptr<LaneWorker> worker_;
  LaneThread thread_;  // last: it uses the others
};

}  // namespace pd
