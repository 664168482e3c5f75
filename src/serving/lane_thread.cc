#include "serving/lane_thread.h"

#include <algorithm>

#include "base/cores.h"

namespace pd {

LaneId LaneOf(const PhysicalDevice& device, std::vector<PhysicalDevice>& lanes) {
  const auto overlaps = [&](const PhysicalDevice& other) { return Overlap(device, other); };
  const auto at = std::ranges::find_if(lanes, overlaps);
  const auto lane = LaneId(at - lanes.begin());
  if (at == lanes.end()) lanes.push_back(device);
  return lane;
}

LaneThread::LaneThread(const PhysicalDevice& device, std::function<void()> last)
    : thread_([this, cores = device.cores, last = std::move(last)] {
        if (!cores.empty()) BindThisThread({cores.data(), 1});
        while (auto task = tasks_.Pop()) (*task)();
        if (last) last();
      }) {}

LaneThread::~LaneThread() {
  tasks_.Push(std::nullopt);
  thread_.join();
}

}  // namespace pd
