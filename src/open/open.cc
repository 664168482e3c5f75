#include "open/open.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <thread>

#include "base/cores.h"
#include "base/error.h"
#include "coreml/device/coreml_prefill.h"
#include "coreml/device/interpreted.h"
#include "coreml/export/bundle.h"
#include "cpu/cpu_device.h"
#include "cpu/peak.h"
#include "device/prefill_via.h"
#include "device/warm_up.h"
#include "mlx/mlx_device.h"
#include "open/bundle_runtime.h"
#include "reference/reference_ops.h"

namespace pd {
namespace {

constexpr int kCpuRows = 512;    // of one step: more gain nothing and take memory
constexpr int kWarmChunk = 256;  // tokens of a prompt that have a GPU compile what any long chunk needs

MlxOptions MlxOptionsFor(int quantise_bits) {
  MlxOptions options;
  options.quantise_bits = quantise_bits;
  return options;
}

// Processors left to the threads that hand steps to a GPU: a busy one makes it wait.
constexpr int kSubmitters = 2;

bool MlxOnCpu() { return std::string_view(MlxBackendName()) == "cpu"; }

int AllThreads(const OpenOptions& options) {
  return options.threads > 0 ? options.threads : std::max(1, int(std::thread::hardware_concurrency()));
}

// Empty: not divided.
struct CoreSplit {
  std::vector<int> prefill, decode;
};

CoreSplit DivideCores(const OpenOptions& options) {
  if (options.prefill_threads == 0 && options.decode_threads == 0) return {};
  const std::vector<int> all = AvailableCores();
  const int count = int(all.size());
  const int prefill = options.prefill_threads > 0 ? options.prefill_threads : count - options.decode_threads;
  const int decode = options.decode_threads > 0 ? options.decode_threads : count - prefill;
  if (prefill < 1 || decode < 1 || prefill + decode > count)
    throw Fail(
        ErrorKind::kBadRequest,
        "{} processors cannot be divided into {} for prefill and {} for decode: each needs one of its own",
        count, std::max(prefill, 0), std::max(decode, 0));
  return {{all.begin(), all.begin() + prefill}, {all.begin() + prefill, all.begin() + prefill + decode}};
}

struct Entry;

// Loads the weights of each backend once, however many devices are opened on them.
class Loader {
 public:
  Loader(ModelSource& source, const OpenOptions& options) : source_(source), options_(options) {}

  // `prompts`: it will read prompts itself.
  std::unique_ptr<DecodeDevice> Open(const Entry& entry, const std::vector<int>& cores, bool prompts);
  std::unique_ptr<PrefillDevice> OpenPrefill(const Entry& entry, const std::vector<int>& cores);

  // Cores: processors of its own; none: all that the options allow, shared with other devices.
  std::unique_ptr<DecodeDevice> OpenCpu(const std::vector<int>& cores) {
    if (!cpu_)
      cpu_ = LoadCpuModel(source_.spec, source_.tensors, *Pool({}), options_.progress, source_.Digest());
    CpuDeviceOptions options;
    options.max_rows = kCpuRows;
    options.cores = cores;
    options.cancelled = options_.cancelled;
    return OpenCpuDevice(cpu_, Pool(cores), options);
  }

  std::unique_ptr<DecodeDevice> OpenMlx(const std::vector<int>&) {
    if (!mlx_) {
      mlx_ = LoadMlxModel(source_.spec, source_.tensors, MlxOptionsFor(options_.quantise_bits),
                          options_.progress, source_.Digest());
      if (options_.note)
        for (const std::string& sentence : LoadNotes(*mlx_)) options_.note(sentence);
    }
    return OpenMlxDevice(mlx_);
  }

  std::unique_ptr<DecodeDevice> OpenReference(const std::vector<int>&) {
    if (!reference_) reference_ = LoadReferenceModel(source_.spec, source_.tensors, source_.Digest());
    return OpenReferenceDevice(reference_);
  }

  std::unique_ptr<PrefillDevice> OpenCoreMl(const std::vector<int>& cores) {
    std::unique_ptr<PrefillDevice> device;
    UseBundle(options_.bundle, [&](const Bundle& bundle) { device = OpenBundle(cores, bundle); });
    return device;
  }

 private:
  std::unique_ptr<PrefillDevice> OpenBundle(const std::vector<int>& cores, const Bundle& bundle) {
    CoreMlOptions options;
    options.cancelled = options_.cancelled;
    std::shared_ptr<CoreMl> core_ml = options_.predictors ? nullptr : SystemCoreMl();
    if (!core_ml) {
      options.physical.cores = cores;
      return OpenCoreMlPrefill(source_, bundle,
                               options_.predictors ? options_.predictors : InterpretedPredictors(Pool(cores)),
                               std::move(options));
    }
    options.name = "ane";
    options.physical.kind = PhysicalDevice::Kind::kNeuralEngine;
    const CoreMlRuntime opened(std::move(core_ml), bundle, ToRuntimeOptions(options_.runtime, options_.note));
    return OpenCoreMlPrefill(source_, bundle, opened.Factory(), std::move(options));
  }

  std::shared_ptr<ThreadPool> Pool(const std::vector<int>& cores) {
    if (!cores.empty()) return std::make_shared<ThreadPool>(int(cores.size()), cores);
    if (!pool_) pool_ = std::make_shared<ThreadPool>(AllThreads(options_));
    return pool_;
  }

  ModelSource& source_;
  const OpenOptions& options_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<const CpuModel> cpu_;
  std::shared_ptr<const MlxModel> mlx_;
  std::shared_ptr<const ReferenceModel> reference_;
};

MemoryNeed NeedOfCpu(ModelSource& model, int) {
  const CpuMemory memory = EstimateCpuMemory(model.spec, model.tensors, kCpuRows);
  return {memory.weights, memory.activations, kCpuMemory};
}

MemoryNeed NeedOfMlx(ModelSource& model, int quantise_bits) {
  const MlxMemory memory = EstimateMlxMemory(model.spec, model.tensors, MlxOptionsFor(quantise_bits));
  MemoryNeed need{memory.weights, 0, memory.memory};
  if (!memory.shared) need.own_memory = GetMlxStatus().memory_bytes;
  return need;
}

MemoryNeed NeedOfReference(ModelSource& model, int) {
  MemoryNeed need;
  ForEachWeight(model.spec, model.tensors, [&](const TensorView& tensor, const WeightInfo&) {
    need.weights += size_t(tensor.rows() * tensor.columns()) * sizeof(double);
  });
  need.memory = kReferenceMemory;
  return need;
}

// Weights as halves, of the layers only: the embedding is read from the model's file as it is needed.
MemoryNeed NeedOfCoreMl(ModelSource& model, int) {
  MemoryNeed need;
  ForEachWeight(model.spec, model.tensors, [&](const TensorView& tensor, const WeightInfo& info) {
    if (IsNeeded(model.spec, info)) need.weights += size_t(tensor.rows() * tensor.columns()) * sizeof(F16);
  });
  need.memory = {.kv = DType::kF16};
  return need;
}

MeasuredPeak PeakOfCpu(const OpenOptions& options) {
  ThreadPool pool(AllThreads(options));
  return {MeasureCpuPeak(pool), 0};
}

MeasuredPeak PeakOfMlx(const OpenOptions&) {
  const MlxPeak peak = MeasureMlxPeak();
  return {peak.flops, peak.bandwidth};
}

// Our interpreter computes on the processor; what runs elsewhere does no products for us to measure.
MeasuredPeak PeakOfCoreMl(const OpenOptions& options) {
  return options.predictors ? MeasuredPeak{} : PeakOfCpu(options);
}

const char* Present() { return nullptr; }
const char* MissingMlx() {
  return std::string_view(MlxBackendName()) == "off" ? "built without MLX" : nullptr;
}

bool Yes() { return true; }
bool No() { return false; }
bool MlxOnGpu() { return !MissingMlx() && !MlxOnCpu(); }

struct Entry {
  const char* name;
  const char* (*missing)();  // why this build cannot open it, or nullptr
  bool (*useful)();          // these: as in BackendInfo
  bool (*gpu)();
  bool needs_bundle, quantises, divides_cores, shares_weights;
  std::unique_ptr<DecodeDevice> (Loader::*open)(const std::vector<int>& cores);  // nullptr: it only prefills
  MemoryNeed (*need)(ModelSource& model, int quantise_bits);
  MeasuredPeak (*peak)(const OpenOptions& options);
  std::unique_ptr<PrefillDevice> (Loader::*open_prefill)(const std::vector<int>& cores) =
      nullptr;                       // nullptr: by way of `open`
  void (*leave_thread)() = nullptr;  // as in Devices
};

// clang-format off
constexpr Entry kTable[] = {
    //                                        bundle quantises divides shares
    {"cpu", Present, Yes, No,                 false, false,    true,   true,
     &Loader::OpenCpu, NeedOfCpu, PeakOfCpu},
    {"reference", Present, No, No,            false, false,    false,  true,
     &Loader::OpenReference, NeedOfReference, PeakOfCpu},
    {"mlx", MissingMlx, MlxOnGpu, MlxOnGpu,   false, true,     false,  true,
     &Loader::OpenMlx, NeedOfMlx, PeakOfMlx, nullptr, LeaveMlxThread},
    {"coreml", Present, Yes, No,              true,  false,    false,  false,
     nullptr, NeedOfCoreMl, PeakOfCoreMl, &Loader::OpenCoreMl},
};
// clang-format on

bool CanDecode(const Entry& entry) { return !entry.missing() && entry.open; }
bool CanPrefill(const Entry& entry) { return !entry.missing() && (entry.open || entry.open_prefill); }

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
  if (const char* missing = it->missing())
    throw Fail(ErrorKind::kUnsupported, "device {}: this pd-engine is {}; it has {}", name, missing,
               fmt::join(Names(can), ", "));
  if (!can(*it))
    throw Fail(ErrorKind::kBadRequest, "device {} only prefills; those that decode are {}", name,
               fmt::join(Names(can), ", "));
  return *it;
}

bool OnGpu(const DecodeDevice& device) { return device.Info().physical.kind == PhysicalDevice::Kind::kGpu; }

std::unique_ptr<DecodeDevice> Loader::Open(const Entry& entry, const std::vector<int>& cores, bool prompts) {
  auto device = (this->*entry.open)(cores);
  if (!OnGpu(*device)) return device;
  const std::array chunk = {std::min(kWarmChunk, source_.spec.max_context)};
  WarmUp(*device, options_.batches, prompts ? std::span<const int>(chunk) : std::span<const int>());
  return device;
}

std::unique_ptr<PrefillDevice> Loader::OpenPrefill(const Entry& entry, const std::vector<int>& cores) {
  if (entry.open_prefill) return (this->*entry.open_prefill)(cores);
  auto device = (this->*entry.open)(cores);
  if (OnGpu(*device)) WarmUp(*device, {}, std::array{std::min(kWarmChunk, source_.spec.max_context)});
  return std::make_unique<PrefillVia>(std::move(device), options_.cancelled);
}

std::string Gigabytes(size_t bytes) { return fmt::format("{:.1f} GB", double(bytes) / 1e9); }

}  // namespace

std::vector<std::pair<std::string, std::string>> DeviceEnvironment(const std::string& kernel_folder) {
  return MlxEnvironment(kernel_folder);
}

void LeaveDeviceThread() { LeaveMlxThread(); }

std::vector<std::string> DeviceNames() { return Names(CanDecode); }
std::vector<std::string> PrefillDeviceNames() { return Names(CanPrefill); }

std::vector<std::string> UsefulDeviceNames() {
  return Names([](const Entry& entry) { return CanPrefill(entry) && entry.useful(); });
}

const std::vector<BackendInfo>& Backends() {
  static const std::vector<BackendInfo> backends = [] {
    std::vector<BackendInfo> all;
    for (const Entry& entry : kTable) {
      const char* missing = entry.missing();
      all.push_back({.name = entry.name,
                     .missing = missing ? missing : "",
                     .prefills = CanPrefill(entry),
                     .decodes = CanDecode(entry),
                     .useful = entry.useful(),
                     .gpu = entry.gpu(),
                     .needs_bundle = entry.needs_bundle,
                     .quantises = entry.quantises,
                     .divides_cores = entry.divides_cores,
                     .shares_weights = entry.shares_weights});
    }
    return all;
  }();
  return backends;
}

const BackendInfo* FindBackend(std::string_view name) {
  const auto it = std::ranges::find(Backends(), name, &BackendInfo::name);
  return it == Backends().end() ? nullptr : &*it;
}

std::string BuildVariant() { return fmt::format("mlx {}", MlxBackendName()); }

void CheckDeviceName(std::string_view name) { Find(name, CanDecode); }
void CheckPrefillDeviceName(std::string_view name) { Find(name, CanPrefill); }

std::unique_ptr<DecodeDevice> OpenDevice(ModelSource& model, std::string_view name,
                                         const OpenOptions& options) {
  return Loader(model, options).Open(Find(name, CanDecode), {}, false);
}

std::unique_ptr<PrefillDevice> OpenPrefillDevice(ModelSource& model, std::string_view name,
                                                 const OpenOptions& options) {
  return Loader(model, options).OpenPrefill(Find(name, CanPrefill), {});
}

Devices OpenDevices(ModelSource& model, std::span<const std::string> prefill, std::string_view decode,
                    const OpenOptions& options) {
  const Entry& decode_entry = Find(decode, CanDecode);
  std::vector<const Entry*> entries;
  for (const std::string& name : prefill) entries.push_back(&Find(name, CanPrefill));
  const CoreSplit cores = DivideCores(options);
  OpenOptions own = options;
  if (decode_entry.gpu() && own.threads == 0) own.threads = std::max(1, AllThreads(options) - kSubmitters);
  Loader loader(model, own);
  Devices devices;
  for (const Entry* entry : entries) {
    devices.prefill.push_back(loader.OpenPrefill(*entry, cores.prefill));
    if (entry->leave_thread) devices.leave_thread = entry->leave_thread;
  }
  devices.decode = loader.Open(decode_entry, cores.decode, entries.empty());
  if (decode_entry.leave_thread) devices.leave_thread = decode_entry.leave_thread;
  return devices;
}

Devices OpenDevices(ModelSource& model, std::string_view prefill, std::string_view decode,
                    const OpenOptions& options) {
  const std::string names[] = {std::string(prefill)};
  return OpenDevices(model, names, decode, options);
}

MeasuredPeak MeasurePeak(std::string_view device, const OpenOptions& options) {
  return Find(device, CanPrefill).peak(options);
}

bool IsBundle(const std::filesystem::path& folder) { return std::filesystem::exists(folder / kBundleFile); }

int TryBundleFunction(const std::filesystem::path& compiled, const std::string& function) {
  const std::unique_ptr<CoreMl> core_ml = SystemCoreMl();
  if (!core_ml) throw Fail(ErrorKind::kUnsupported, "there is no Core ML on this system");
  return TrialExitCode(TryFunction(*core_ml, compiled, function));
}

int ThreadCount(const OpenOptions& options, const DeviceInfo& device) {
  return device.physical.cores.empty() ? AllThreads(options) : int(device.physical.cores.size());
}

MemoryNeed EstimateMemory(ModelSource& model, std::string_view device, int quantise_bits) {
  return Find(device, CanPrefill).need(model, quantise_bits);
}

void CheckMemory(ModelSource& model, std::span<const std::string> devices, int tokens, size_t available,
                 int quantise_bits) {
  struct Sum {
    size_t weights = 0, kv = 0, activations = 0;
    std::vector<std::string> devices;
  };
  const auto check = [&](const Sum& sum, size_t most) {
    const size_t total = sum.weights + sum.kv + sum.activations;
    if (total <= most) return;
    throw Fail(
        ErrorKind::kOutOfMemory,
        "{} needs {}: {} of weights, {} of keys and values for {} tokens on {}; {} are available; choose a "
        "smaller or more strongly quantised model, or a shorter context",
        model.path.string(), Gigabytes(total), Gigabytes(sum.weights), Gigabytes(sum.kv), tokens,
        fmt::join(sum.devices, " and "), Gigabytes(most));
  };
  Sum shared;
  for (size_t i = 0; i < devices.size(); ++i) {
    const MemoryNeed need = EstimateMemory(model, devices[i], quantise_bits);
    const bool first = std::ranges::find(devices.first(i), devices[i]) == devices.begin() + ptrdiff_t(i);
    const auto uses = size_t(std::ranges::count(devices, devices[i]));
    if (need.own_memory) {
      if (first)
        check({need.weights,
               uses * MemoryBytes(model.spec, need.memory, tokens),
               need.activations,
               {devices[i]}},
              *need.own_memory);
      continue;
    }
    if (first || !FindBackend(devices[i])->shares_weights) shared.weights += need.weights;
    shared.kv += MemoryBytes(model.spec, need.memory, tokens);
    shared.activations += need.activations;
    shared.devices.push_back(devices[i]);
  }
  check(shared, available);
}

}  // namespace pd
