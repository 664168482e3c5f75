// The CPU as a device. This and model.h are what others need of the CPU backend.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "cpu/level.h"
#include "cpu/model.h"
#include "device/device.h"

namespace pd {

struct CpuDeviceOptions {
  int max_rows = 512;  // of one step
  // Instructions to use; absent: the best there are. Results do not depend on it.
  std::optional<cpu::Level> level = {};
  // Bytes that all slots may come to when full; 0: the machine's memory less the weights.
  size_t kv_limit = 0;
  // Processors that the pool's threads and the device's lane are bound to; empty: any.
  std::vector<int> cores = {};
};

// A device with KV memory of its own; any number of them share a model's packed weights. Instances that share
// a pool must not compute at the same time. Throws kUnsupported when the processor lacks the level.
std::unique_ptr<DecodeDevice> OpenCpuDevice(std::shared_ptr<const CpuModel> model,
                                            std::shared_ptr<ThreadPool> pool,
                                            const CpuDeviceOptions& options = {});

}  // namespace pd
