// The CPU as a device. Other code needs only this file and model.h of the CPU backend.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cpu/level.h"
#include "cpu/model.h"
#include "device/device.h"

namespace pd {

struct CpuDeviceOptions {
  int max_rows = 512;  // of one step
  // Instruction set to use; nullopt: the best available. Results do not depend on it.
  std::optional<cpu::Level> level = {};
  // Size limit in bytes of all slots at full length; 0: the machine's memory less the weights.
  size_t kv_limit = 0;
  // Processors that the pool's threads and the device's lane are bound to; empty: any.
  std::vector<int> cores = {};
  // Asked before each layer; true ends the step with kCancelled. Empty: never.
  std::function<bool()> cancelled = {};
};

// A device with its own KV memory; any number of devices share a model's packed weights. Devices that share a
// pool must not compute at the same time. Throws kUnsupported when the processor lacks the level.
std::unique_ptr<DecodeDevice> OpenCpuDevice(std::shared_ptr<const CpuModel> model,
                                            std::shared_ptr<ThreadPool> pool,
                                            const CpuDeviceOptions& options = {});

}  // namespace pd
