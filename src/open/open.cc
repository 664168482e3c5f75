#include "open/open.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "coreml/device/coreml_prefill.h"
#include "coreml/device/interpreted.h"
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
    if (!cpu_) cpu_ = LoadCpuModel(source_.spec, source_.tensors, *Pool(), options_.progress);
    CpuDeviceOptions options;
    options.max_rows = kCpuRows;
    return OpenCpuDevice(cpu_, Pool(), options);
  }

  std::unique_ptr<DecodeDevice> OpenReference() {
    if (!reference_) reference_ = LoadReferenceModel(source_.spec, source_.tensors);
    return OpenReferenceDevice(reference_);
  }

  std::unique_ptr<PrefillDevice> OpenCoreMl() {
    const Bundle bundle = ReadBundle(options_.bundle);
    const PredictorFactory open = options_.predictors ? options_.predictors : InterpretedPredictors(Pool());
    return OpenCoreMlPrefill(source_, bundle, open, {});
  }

 private:
  const std::shared_ptr<ThreadPool>& Pool() {
    if (!pool_) pool_ = std::make_shared<ThreadPool>(ThreadCount(options_));
    return pool_;
  }

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

// Weights as halves, of the layers only: the embedding is read from the model's file as it is needed.
MemoryNeed NeedOfCoreMl(ModelSource& model) {
  MemoryNeed need;
  ForEachWeight(model.spec, model.tensors, [&](const TensorView& tensor, const WeightInfo& info) {
    if (IsNeeded(model.spec, info)) need.weights += size_t(tensor.rows() * tensor.columns()) * sizeof(F16);
  });
  for (const LayerSpec& layer : model.spec.layers)
    need.kv_per_token += 2 * size_t(layer.attn.kv_width()) * sizeof(F16);
  return need;
}

struct Entry {
  const char* name;
  const char* missing;                              // not nullptr: why this build cannot open it
  std::unique_ptr<DecodeDevice> (Loader::*open)();  // nullptr: it only prefills
  MemoryNeed (*need)(ModelSource& model);
  std::unique_ptr<PrefillDevice> (Loader::*open_prefill)() = nullptr;  // nullptr: by way of `open`
};

constexpr Entry kTable[] = {
    {"cpu", nullptr, &Loader::OpenCpu, NeedOfCpu},
    {"reference", nullptr, &Loader::OpenReference, NeedOfReference},
    {"mlx", "built without MLX", nullptr, nullptr},
    {"coreml", nullptr, nullptr, NeedOfCoreMl, &Loader::OpenCoreMl},
};

bool CanDecode(const Entry& entry) { return !entry.missing && entry.open; }
bool CanPrefill(const Entry& entry) { return !entry.missing && (entry.open || entry.open_prefill); }

std::vector<std::string> Names(bool (*can)(const Entry&)) {
  std::vector<std::string> names;
  for (const Entry& entry : kTable)
    if (can(entry)) names.emplace_back(entry.name);
  return names;
}

// The entry of a device that must be able to do this.
const Entry& Find(std::string_view name, bool (*can)(const Entry&)) {
  const auto it = std::ranges::find(kTable, name, &Entry::name);
  if (it == std::end(kTable))
    throw Fail(ErrorKind::kBadRequest, "there is no device '{}': this build has {}", name,
               fmt::join(Names(can), ", "));
  if (it->missing)
    throw Fail(ErrorKind::kUnsupported, "device {}: this pd-engine is {}; it has {}", name, it->missing,
               fmt::join(Names(can), ", "));
  if (!can(*it))
    throw Fail(ErrorKind::kBadRequest, "device {} only prefills; those that decode are {}", name,
               fmt::join(Names(can), ", "));
  return *it;
}

std::string Gigabytes(size_t bytes) { return fmt::format("{:.1f} GB", double(bytes) / 1e9); }

}  // namespace

std::vector<std::string> DeviceNames() { return Names(CanDecode); }
std::vector<std::string> PrefillDeviceNames() { return Names(CanPrefill); }

void CheckDeviceName(std::string_view name) { Find(name, CanDecode); }
void CheckPrefillDeviceName(std::string_view name) { Find(name, CanPrefill); }

std::unique_ptr<DecodeDevice> OpenDevice(ModelSource& model, std::string_view name,
                                         const OpenOptions& options) {
  Loader loader(model, options);
  return (loader.*Find(name, CanDecode).open)();
}

Devices OpenDevices(ModelSource& model, std::string_view prefill, std::string_view decode,
                    const OpenOptions& options) {
  const Entry &prefill_entry = Find(prefill, CanPrefill), &decode_entry = Find(decode, CanDecode);
  Loader loader(model, options);
  Devices devices;
  devices.prefill = prefill_entry.open_prefill ? (loader.*prefill_entry.open_prefill)()
                                               : std::make_unique<PrefillVia>((loader.*prefill_entry.open)());
  devices.decode = (loader.*decode_entry.open)();
  return devices;
}

int ThreadCount(const OpenOptions& options) {
  return options.threads > 0 ? options.threads : std::max(1, int(std::thread::hardware_concurrency()));
}

MemoryNeed EstimateMemory(ModelSource& model, std::string_view device) {
  return Find(device, CanPrefill).need(model);
}

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
