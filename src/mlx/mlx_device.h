// MLX as a device: Apple's GPUs (metal), NVIDIA's (cuda), or the processor (cpu, for tests), chosen at build
// time. A build without MLX has the same functions, which throw kUnsupported.
//
// Thread: a device is used by one thread, its lane. Another thread may open it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "model/tensor.h"

namespace pd {

// The backend of this build: "off", "cpu", "cuda" or "metal".
const char* MlxBackendName();

struct MlxStatus {
  std::string backend;  // MlxBackendName()
  std::string version;  // of the loaded library; empty when off
  bool usable = false;
  std::string problem;      // one line with the remedy, when not usable
  std::string device;       // "Apple M3 Max", "NVIDIA H200"
  size_t memory_bytes = 0;  // the most that MLX will allocate
  // metal: the compiled kernels that were found, and whether they include those for the M5's matrix units
  std::string kernel_library;
  bool matrix_unit_kernels = false;
};
MlxStatus GetMlxStatus();

// Environment variables that a program must set, unless present, before the first call here: MLX reads them,
// and libraries do not write the environment. Kernels that MLX compiles are kept in `kernel_folder` and
// loaded from it as code, so it must be private.
std::vector<std::pair<std::string, std::string>> MlxEnvironment(const std::string& kernel_folder);

struct MlxOptions {
  // kF32, kF16 or kBF16. nullopt: f32 on the cpu backend, where 16-bit types are slow; on a GPU bf16 for bf16
  // weights, f16 for all others.
  std::optional<DType> activations;
  // 4 or 8: matrices that MLX would hold in 16 bits are quantised at load, in groups of 64. 0: not quantised.
  int quantise_bits = 0;
  int max_rows = 2048;  // of one step
};

// Weights in the device's memory, shared by the devices opened on them. Weights quantised by MLX are
// unchanged; Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 become affine in groups of 32 without loss, Q4_K and Q5_K with
// scales rounded to the activations' type; other types are held in the activations' type.
class MlxModel;

// What loading changed, one sentence each, for the user: rounded scales, matrices held in more or fewer bits
// than in the file, with the memory they take.
const std::vector<std::string>& LoadNotes(const MlxModel& model);

// Bytes that a model takes on the device, known before loading.
struct MlxMemory {
  size_t weights = 0;
  MemoryFormat memory;  // of each slot; every slot takes the room of the longest
  bool shared = false;  // the device shares memory with the processor
};
MlxMemory EstimateMlxMemory(const ModelSpec& spec, const Weights<TensorView>& tensors,
                            const MlxOptions& options = {});

// `progress` reports how far loading is, on the caller's thread; what it throws ends the loading. `digest`:
// WeightsDigest if known; else it is computed. Throws kUnsupported (no MLX in this build, or invalid
// options), kOutOfMemory (predicted), kDevice.
std::shared_ptr<const MlxModel> LoadMlxModel(
    const ModelSpec& spec, const Weights<TensorView>& tensors, const MlxOptions& options = {},
    const std::function<void(size_t done, size_t total)>& progress = {}, std::optional<uint64_t> digest = {});

// A failed step throws kDevice, and so do uncollected steps submitted after it. The slots of their rows are
// lost: each use throws kDevice until they are closed. On the cpu backend, where steps do not write in place,
// every open slot is lost. The device itself stays usable.
std::unique_ptr<DecodeDevice> OpenMlxDevice(std::shared_ptr<const MlxModel> model);

// Peak rates of the device: a product of large square matrices of 16 bits (32 on the cpu backend), and
// reading memory. Best of several runs, each waited for. Calls LeaveMlxThread on the calling thread at the
// end.
struct MlxPeak {
  double flops = 0, bandwidth = 0;  // operations and bytes per second
};
MlxPeak MeasureMlxPeak();

// Call last on any thread that used a device: waits for MLX's work on the thread and releases MLX's
// per-thread resources. Devices may then be used from other threads only. Does not throw: failed work was
// thrown when it was collected.
void LeaveMlxThread();

}  // namespace pd
