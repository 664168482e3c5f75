// Devices by name: the one place that knows every backend.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coreml/device/predictor.h"
#include "coreml/runtime/runtime.h"
#include "device/device.h"
#include "formats/model_source.h"

namespace pd {

struct OpenOptions {
  // That a CPU device computes with; 0: one for each processor, but for two beside a GPU that decodes.
  int threads = 0;
  // Not both 0: prefill and decode on the CPU get processors of their own, this many; 0: what the other
  // leaves. Devices that do not overlap compute at the same time.
  int prefill_threads = 0, decode_threads = 0;
  // Told how far loading is, on the caller's thread; what it throws ends the loading.
  std::function<void(size_t done_bytes, size_t total_bytes)> progress = {};
  std::filesystem::path bundle = {};  // the exported model that device coreml runs
  PredictorFactory predictors =
      {};                       // what runs its packages; empty: Core ML, where there is none our interpreter
  RuntimeOptions runtime = {};  // of Core ML; without a note of its own it uses the one below
  // 4 or 8: weights that mlx would hold in 16 bits are quantised at load. 0: they stay so.
  int quantise_bits = 0;
  // Told what loading did to the weights that the user should know, a sentence at a time.
  std::function<void(const std::string& sentence)> note = {};
  // Sequences that will decode together: a GPU then compiles what such steps need before the first comes.
  std::vector<int> batches = {1};
};

// Each has KV memory of its own; devices of one backend share their weights. Devices that overlap share
// threads too, so one thread must use both.
struct Devices {
  std::vector<std::unique_ptr<PrefillDevice>> prefill;  // in the order of their names
  std::unique_ptr<DecodeDevice> decode;
  // Not empty: the last thing that a thread calls which has called one of them, before it ends. Does not
  // throw.
  std::function<void()> leave_thread = {};
};

// Variables that backends read from the process's environment: a program sets those that are not set yet,
// before it opens a device. `kernel_folder` is where they keep what they compile, and load it from as code:
// nobody else may write there. Empty when no backend of this build compiles anything.
std::vector<std::pair<std::string, std::string>> DeviceEnvironment(const std::string& kernel_folder);

// The last thing that a thread does which has called devices: lets go of what backends keep for each thread.
// The devices are closed by then, or other threads'. Does not throw.
void LeaveDeviceThread();

// What this build can open, as --decode takes it.
std::vector<std::string> DeviceNames();
// The same and what only prefills, as --prefill takes it.
std::vector<std::string> PrefillDeviceNames();

// Those of PrefillDeviceNames() that a user may want: neither the reference nor MLX on the processor, which
// are there to check others and to be checked.
std::vector<std::string> UsefulDeviceNames();

// Throw kBadRequest for a name that nobody knows or that cannot do this, listing those that can; kUnsupported
// for a device that is not in this build.
void CheckDeviceName(std::string_view name);
void CheckPrefillDeviceName(std::string_view name);

// Load the model and open devices on it. Throw what CheckDeviceName and loading throw.
std::unique_ptr<DecodeDevice> OpenDevice(ModelSource& model, std::string_view name,
                                         const OpenOptions& options);
std::unique_ptr<PrefillDevice> OpenPrefillDevice(ModelSource& model, std::string_view name,
                                                 const OpenOptions& options);
// Any number of prefill devices, and one that decodes. kBadRequest when there are not enough processors to
// divide.
Devices OpenDevices(ModelSource& model, std::span<const std::string> prefill, std::string_view decode,
                    const OpenOptions& options);
Devices OpenDevices(ModelSource& model, std::string_view prefill, std::string_view decode,
                    const OpenOptions& options);

// What the process of a trial does (coreml/runtime/trial.h): the first prediction of a function. Returns its
// exit code. Throws kUnsupported where there is no Core ML.
int TryCoreMlFunction(const std::filesystem::path& compiled, const std::string& function);

// The threads that `options` stand for on a device that Info() describes.
int ThreadCount(const OpenOptions& options, const DeviceInfo& device);

// What a device can do at most, measured now by large products in its own arithmetic, with nothing else on
// it: operations a second, and bytes a second of the device's own memory. 0: cannot be measured (a
// processor's memory: engine/bandwidth.h). To be called on a thread that ends with LeaveDeviceThread.
struct MeasuredPeak {
  double flops = 0, bandwidth = 0;
};
MeasuredPeak MeasurePeak(std::string_view device, const OpenOptions& options);

// What a device needs, known before anything is loaded. Bytes.
struct MemoryNeed {
  size_t weights = 0;       // shared by devices of one backend
  size_t activations = 0;   // at most
  size_t kv_per_token = 0;  // for each token of a slot's capacity
  // Bytes of the device's own memory, when this is of that and not of the processor's.
  std::optional<size_t> own_memory = std::nullopt;
};
MemoryNeed EstimateMemory(ModelSource& model, std::string_view device, int quantise_bits = 0);

// Throws kOutOfMemory with the numbers when these devices together, each with one sequence of `tokens`, do
// not fit `available` bytes of the processor's memory, or those of them that have memory of their own do not
// fit that.
void CheckMemory(ModelSource& model, std::span<const std::string> devices, int tokens, size_t available,
                 int quantise_bits = 0);

}  // namespace pd
