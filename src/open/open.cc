#include "open/open.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "cpu/cpu_device.h"
#include "device/prefill_via.h"
#include "reference/reference_ops.h"

namespace pd {
namespace {

constexpr int kCpuRows = 512;  // of one step: more gain nothing and take memory

// Loads the weights of each backend once, however many devices are opened on them.
class Loader {
 public:
  Loader(ModelSource& source, const OpenOptions& options) : source_(source), options_(options) {}

  std::unique_ptr<DecodeDevice> OpenCpu() {
    if (!cpu_) {
      pool_ = std::make_shared<ThreadPool>(ThreadCount(options_));
      cpu_ = LoadCpuModel(source_.spec, source_.tensors, *pool_, options_.progress);
    }
    CpuDeviceOptions options;
    options.max_rows = kCpuRows;
    return OpenCpuDevice(cpu_, pool_, options);
  }

  std::unique_ptr<DecodeDevice> OpenReference() {
    if (!reference_) reference_ = LoadReferenceModel(source_.spec, source_.tensors);
    return OpenReferenceDevice(reference_);
  }

 private:
  ModelSource& source_;
  const OpenOptions& options_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<const CpuModel> cpu_;
  std::shared_ptr<const ReferenceModel> reference_;
};

MemoryNeed NeedOfCpu(ModelSource& model) {
  const CpuMemory memory = EstimateCpuMemory(model.spec, model.tensors, kCpuRows);
  return {memory.weights, memory.activations, memory.kv_per_token};
}

MemoryNeed NeedOfReference(ModelSource& model) {
  MemoryNeed need;
  ForEachWeight(model.spec, model.tensors, [&](const TensorView& tensor, const WeightInfo&) {
    need.weights += size_t(tensor.rows() * tensor.columns()) * sizeof(double);
  });
  for (const LayerSpec& layer : model.spec.layers)
    need.kv_per_token += 2 * size_t(layer.attn.kv_width()) * sizeof(double);
  return need;
}

struct Entry {
  const char* name;
  const char* missing;  // not nullptr: why this build cannot open it
  std::unique_ptr<DecodeDevice> (Loader::*open)();
  MemoryNeed (*need)(ModelSource& model);
};

constexpr Entry kTable[] = {
    {"cpu", nullptr, &Loader::OpenCpu, NeedOfCpu},
    {"reference", nullptr, &Loader::OpenReference, NeedOfReference},
    {"mlx", "built without MLX", nullptr, nullptr},
    {"coreml", "built without Core ML", nullptr, nullptr},
};

const Entry& Find(std::string_view name) {
  const auto it = std::ranges::find(kTable, name, &Entry::name);
  if (it == std::end(kTable))
    throw Fail(ErrorKind::kBadRequest, "there is no device '{}': this build has {}", name,
               fmt::join(DeviceNames(), ", "));
  if (it->missing)
    throw Fail(ErrorKind::kUnsupported, "device {}: this pd-engine is {}; it has {}", name, it->missing,
               fmt::join(DeviceNames(), ", "));
  return *it;
}

std::string Gigabytes(size_t bytes) { return fmt::format("{:.1f} GB", double(bytes) / 1e9); }

}  // namespace

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kTable)
    if (!entry.missing) names.emplace_back(entry.name);
  return names;
}

void CheckDeviceName(std::string_view name) { Find(name); }

std::unique_ptr<DecodeDevice> OpenDevice(ModelSource& model, std::string_view name,
                                         const OpenOptions& options) {
  Loader loader(model, options);
  return (loader.*Find(name).open)();
}

Devices OpenDevices(ModelSource& model, std::string_view prefill, std::string_view decode,
                    const OpenOptions& options) {
  const Entry &prefill_entry = Find(prefill), &decode_entry = Find(decode);
  Loader loader(model, options);
  Devices devices;
  devices.prefill = std::make_unique<PrefillVia>((loader.*prefill_entry.open)());
  devices.decode = (loader.*decode_entry.open)();
  return devices;
}

int ThreadCount(const OpenOptions& options) {
  return options.threads > 0 ? options.threads : std::max(1, int(std::thread::hardware_concurrency()));
}

MemoryNeed EstimateMemory(ModelSource& model, std::string_view device) { return Find(device).need(model); }

void CheckMemory(ModelSource& model, std::span<const std::string> devices, int tokens, size_t available) {
  size_t weights = 0, kv = 0, activations = 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    const MemoryNeed need = EstimateMemory(model, devices[i]);
    if (std::ranges::find(devices.first(i), devices[i]) == devices.begin() + ptrdiff_t(i))
      weights += need.weights;
    kv += need.kv_per_token * size_t(tokens);
    activations += need.activations;
  }
  const size_t total = weights + kv + activations;
  if (total > available)
    throw Fail(ErrorKind::kOutOfMemory,
               "{} needs {}: {} of weights, {} of keys and values for {} tokens on {}; {} are available; "
               "choose a smaller "
               "or more strongly quantised model, or a shorter context",
               model.path.string(), Gigabytes(total), Gigabytes(weights), Gigabytes(kv), tokens,
               fmt::join(devices, " and "), Gigabytes(available));
}

}  // namespace pd
