// MLX as a device: Apple's GPUs (metal), NVIDIA's (cuda), or the processor (cpu, for tests). Which one is
// decided when the product is built; a build without MLX has the same functions, which throw kUnsupported.
//
// Thread: a device is called by one thread, its lane. It may have been opened by another.
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

// What this build holds: "off", "cpu", "cuda" or "metal".
const char* MlxBackendName();

struct MlxStatus {
  std::string backend;  // MlxBackendName()
  std::string version;  // of the library that is loaded; empty when off
  bool usable = false;
  std::string problem;      // one line with the remedy, when not usable
  std::string device;       // "Apple M3 Max", "NVIDIA H200"
  size_t memory_bytes = 0;  // what MLX will allocate at most
  // metal: the compiled kernels that were found, and whether those for the M5's matrix units are among them
  std::string kernel_library;
  bool matrix_unit_kernels = false;
};
MlxStatus GetMlxStatus();

// What a program puts into its environment before the first call here, unless it is there already: MLX reads
// it, and libraries do not write it. Kernels that MLX compiles are kept in `kernel_folder` and loaded from it
// as code, so it must be private.
std::vector<std::pair<std::string, std::string>> MlxEnvironment(const std::string& kernel_folder);

struct MlxOptions {
  // kF32, kF16 or kBF16. Unset: f32 on the cpu backend, where 16-bit types are slow; on a GPU bf16 for bf16
  // weights, f16 for all others.
  std::optional<DType> activations;
  // 4 or 8: matrices that MLX would hold in 16 bits are quantised at load, in groups of 64. 0: they stay so.
  int quantise_bits = 0;
  int max_rows = 2048;  // of one step
};

// Weights in the device's memory, shared by the devices opened on them. What MLX quantised stays as it is;
// Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 become affine in groups of 32 without any loss, Q4_K and Q5_K with their
// scales rounded to the type of the activations; other types are held in that type.
class MlxModel;

// What loading changed, one sentence each, for the user: scales that were rounded, matrices held in more or
// fewer bits than the file's, with the memory that takes.
const std::vector<std::string>& LoadNotes(const MlxModel& model);

// What a model will take on the device, known before anything is loaded. Bytes.
struct MlxMemory {
  size_t weights = 0;
  MemoryFormat memory;  // of each slot, which takes the room of the longest one
  bool shared = false;  // it is the processor's memory too
};
MlxMemory EstimateMlxMemory(const ModelSpec& spec, const Weights<TensorView>& tensors,
                            const MlxOptions& options = {});

// `progress` is told how far loading is, on the caller's thread; what it throws ends the loading. `digest`:
// WeightsDigest, of who has it; else it is computed.
// Throws kUnsupported (no MLX here, or options that make no sense), kOutOfMemory (predicted), kDevice.
std::shared_ptr<const MlxModel> LoadMlxModel(
    const ModelSpec& spec, const Weights<TensorView>& tensors, const MlxOptions& options = {},
    const std::function<void(size_t done, size_t total)>& progress = {}, std::optional<uint64_t> digest = {});

// A failed step throws kDevice, and so do the steps submitted after it and not yet collected; the slots of
// their rows are lost (each use throws kDevice until they are closed). On the cpu backend, whose steps do not
// write in place, every slot then open is. The device itself stays usable.
std::unique_ptr<DecodeDevice> OpenMlxDevice(std::shared_ptr<const MlxModel> model);

// What the device does at most: a product of large square matrices of 16 bits (32 on the cpu backend), and
// reading memory. Best of several runs, each waited for; the calling thread ends with LeaveMlxThread.
struct MlxPeak {
  double flops = 0, bandwidth = 0;  // operations and bytes a second
};
MlxPeak MeasureMlxPeak();

// The last thing that a thread does which has called a device, before it ends: waits for MLX's work on it and
// lets go of MLX's per-thread resources. Devices may then be used from other threads only. Does not throw:
// work that failed was thrown to whoever collected it.
void LeaveMlxThread();

}  // namespace pd
