// Devices by name. Above this floor a backend is a name and its BackendInfo.
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

#include "device/device.h"
#include "formats/model_source.h"

namespace pd {

class Predictor;

inline constexpr const char* kDefaultDevice = "cpu";  // decodes, in every build

// What a backend can do, for those that choose among backends or check settings.
struct BackendInfo {
  std::string name;             // as OpenDevice and OpenPrefillDevice take it
  std::string missing = {};     // why this build cannot open it; empty: it can
  bool prefills = false;        // in this build
  bool decodes = false;         // likewise
  bool useful = false;          // to users; false: it checks others, or is there to be checked
  bool gpu = false;             // computes on a GPU
  bool needs_bundle = false;    // runs OpenOptions::bundle
  bool quantises = false;       // obeys OpenOptions::quantise_bits
  bool divides_cores = false;   // prefill and decode may have processors of their own
  bool shares_weights = false;  // two of its devices hold the weights once
};
// All of them, those that this build lacks included; always the same order.
const std::vector<BackendInfo>& Backends();
const BackendInfo* FindBackend(std::string_view name);  // nullptr: there is none of this name

// How the system compiles and tries the programs of a bundle. Without effect where our interpreter runs them.
struct BundleRuntime {
  std::filesystem::path compiled = {};  // folder of compiled programs; empty: each process compiles anew
  // Arguments that make this program call TryBundleFunction with the two that follow them. A function's first
  // prediction is then made in a process of its own; empty: in this one, at its risk.
  std::vector<std::string> trial_arguments = {};
  std::function<bool()> cancelled = {};  // asked while something is compiled, loaded or tried
};

struct OpenOptions {
  // That a CPU device computes with; 0: one for each processor, but for two beside a GPU that decodes.
  int threads = 0;
  // Not both 0: prefill and decode on the CPU get processors of their own, this many; 0: what the other
  // leaves. Devices that do not overlap compute at the same time.
  int prefill_threads = 0, decode_threads = 0;
  // Asked while a device computes a prompt or a step, between layers or calls, on the device's thread; true
  // ends that with kCancelled. For good: the device is of no use then but to be closed. Empty: never.
  std::function<bool()> cancelled = {};
  // Told how far loading is, on the caller's thread; what it throws ends the loading.
  std::function<void(size_t done_bytes, size_t total_bytes)> progress = {};
  std::filesystem::path bundle = {};  // of the device that needs one
  BundleRuntime runtime = {};
  // For tests: what runs a package of the bundle. Empty: the system, or our interpreter where it cannot.
  std::function<std::unique_ptr<Predictor>(const std::filesystem::path& package)> predictors = {};
  // 4 or 8: a backend that quantises does so with weights it would hold in 16 bits. 0: they stay so.
  int quantise_bits = 0;
  // Told what the user should know of loading and of a bundle's programs, a sentence at a time.
  std::function<void(const std::string& sentence)> note = {};
  // Sequences that will decode together: a GPU then compiles what such steps need before the first comes.
  std::vector<int> batches = {1};
};

// Each has KV memory of its own; devices of one backend share their weights. Devices that overlap share
// threads too, so one thread must use both.
struct Devices {
  std::vector<std::unique_ptr<PrefillDevice>> prefill;  // in the order of their names
  std::unique_ptr<DecodeDevice> decode;
  // Call last on any thread that used one of them, if not empty. Does not throw.
  std::function<void()> leave_thread = {};
};

// Variables that backends read from the process's environment: a program sets those that are not set yet,
// before it opens a device. `kernel_folder` is where they keep what they compile, and load it from as code:
// nobody else may write there. Empty when no backend of this build compiles anything.
std::vector<std::pair<std::string, std::string>> DeviceEnvironment(const std::string& kernel_folder);

// Call last on any thread that used a device: frees what backends keep for each thread. Its devices are
// closed by then. Does not throw.
void LeaveDeviceThread();

// Of the backends in this build: those that decode, those that prefill, and the useful ones of the latter.
std::vector<std::string> DeviceNames();
std::vector<std::string> PrefillDeviceNames();
std::vector<std::string> UsefulDeviceNames();

// Throw kBadRequest for an unknown name or a device that cannot do this, listing those that can; kUnsupported
// for a backend that this build lacks.
void CheckDeviceName(std::string_view name);
void CheckPrefillDeviceName(std::string_view name);

// Load the model and open devices on it. Throw what CheckDeviceName and loading throw.
std::unique_ptr<DecodeDevice> OpenDevice(ModelSource& model, std::string_view name,
                                         const OpenOptions& options);
std::unique_ptr<PrefillDevice> OpenPrefillDevice(ModelSource& model, std::string_view name,
                                                 const OpenOptions& options);
// Any number of prefill devices, and one that decodes; without any it is made ready to read prompts, too.
// kBadRequest when there are not enough processors to divide.
Devices OpenDevices(ModelSource& model, std::span<const std::string> prefill, std::string_view decode,
                    const OpenOptions& options);
Devices OpenDevices(ModelSource& model, std::string_view prefill, std::string_view decode,
                    const OpenOptions& options);

// Whether a folder is a bundle, whole or not: what `export` writes.
bool IsBundle(const std::filesystem::path& folder);

// What a trial's process does (BundleRuntime::trial_arguments): the first prediction of a compiled function.
// Returns the process's exit code. Throws kUnsupported where the system runs no bundles.
int TryBundleFunction(const std::filesystem::path& compiled, const std::string& function);

// The parts of this build on which measured times depend, besides the processor: "mlx off".
std::string BuildVariant();

// The threads that `options` stand for on a device that Info() describes.
int ThreadCount(const OpenOptions& options, const DeviceInfo& device);

// What a device can do at most, measured now by large products in its own arithmetic, with nothing else on
// it: operations a second, and bytes a second of the device's own memory. 0: cannot be measured (a
// processor's memory: planning/bandwidth.h). Call on a thread that ends with LeaveDeviceThread.
struct MeasuredPeak {
  double flops = 0, bandwidth = 0;
};
MeasuredPeak MeasurePeak(std::string_view device, const OpenOptions& options);

// What a device needs, known before anything is loaded. Bytes.
struct MemoryNeed {
  size_t weights = 0;        // shared by devices of one backend
  size_t activations = 0;    // at most
  MemoryFormat memory = {};  // of each sequence: MemoryBytes
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
