// The thread of one lane, and which devices share a lane.
#pragma once
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "serving/job.h"
#include "serving/queue.h"

namespace pd {

// The lane of `device`: that of a device it overlaps with, or a new one, which is appended to `lanes`.
LaneId LaneOf(const PhysicalDevice& device, std::vector<PhysicalDevice>& lanes);

// Runs tasks in order on a thread of its own, where devices can be called. Not thread-safe.
class LaneThread {
 public:
  // Bound to the first of the device's cores, if it has any: its other threads are on the others. `last` is
  // called on the thread before it ends; it must not throw.
  explicit LaneThread(const PhysicalDevice& device, std::function<void()> last = {});
  ~LaneThread();  // when all tasks are done
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  // The future passes on what the task throws.
  template <class F>
  std::future<void> Start(F task) {
    Task started(std::move(task));
    std::future<void> done = started.get_future();
    tasks_.Push(std::move(started));
    return done;
  }
  // Starts the task, waits for it, and passes on what it throws.
  template <class F>
  void Do(F task) {
    Start(std::move(task)).get();
  }

 private:
  using Task = std::packaged_task<void()>;
  Queue<std::optional<Task>> tasks_;  // nullopt: the end
  std::thread thread_;
};

}  // namespace pd
