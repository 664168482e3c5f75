#include "cpu/cpu_device.h"

#include <algorithm>

#include "base/error.h"
#include "cpu/backend.h"

namespace pd {

std::unique_ptr<DecodeDevice> OpenCpuDevice(std::shared_ptr<const CpuModel> model,
                                            std::shared_ptr<ThreadPool> pool,
                                            const CpuDeviceOptions& options) {
  const cpu::Level level = options.level.value_or(cpu::BestLevel());
  const cpu::Kernels* kernels = cpu::FindKernels(level);
  if (!kernels)
    throw Fail(ErrorKind::kUnsupported,
               "cpu: this processor has no {}; let the engine choose the instructions", cpu::Name(level));
  const size_t memory = cpu::PhysicalMemory();
  const size_t kv_limit = options.kv_limit > 0 ? options.kv_limit : memory - std::min(memory, model->bytes());
  DeviceInfo info{"cpu", {PhysicalDevice::Kind::kCpu, 0, options.cores}, options.max_rows};
  info.weight_bytes = model->packed_bytes();
  info.memory = kCpuMemory;
  return std::make_unique<LocalDevice<cpu::CpuBackend>>(
      cpu::CpuBackend(std::move(model), std::move(pool), *kernels, kv_limit, options.cancelled),
      std::move(info));
}

}  // namespace pd
