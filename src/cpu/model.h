// A model's weights as the CPU backend keeps them: packed once, shared by every device instance.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "cpu/packed.h"
#include "cpu/pages.h"
#include "cpu/pool.h"
#include "kv/segment.h"
#include "model/tensor.h"

namespace pd {

// Reports the progress of loading, on the caller's thread.
using LoadProgress = std::function<void(size_t done_bytes, size_t total_bytes)>;

namespace cpu {

// A gain or bias, padded with zeros to whole tiles of 32.
using Vector = std::span<const float>;
// Matrices of products are packed. An embedding table that is not also the head stays in the file: a step
// reads only a few of its rows.
using CpuWeight = std::variant<PackedMatrix, Vector, TensorView>;

}  // namespace cpu

// Immutable: any thread may read. Weights keep their type if there are kernels for it (cpu::PackedType); a
// table that serves as embedding and head is held once.
class CpuModel {
 public:
  const ModelSpec& spec() const { return spec_; }
  const Weights<cpu::CpuWeight>& weights() const { return weights_; }
  const KvIdentity& id() const { return id_; }           // with the default variant
  size_t packed_bytes() const { return packed_bytes_; }  // of matrices: what a decode step reads
  size_t bytes() const { return pages_.bytes() + vectors_.size() * sizeof(float); }

 private:
  friend std::shared_ptr<const CpuModel> LoadCpuModel(const ModelSpec&, const Weights<TensorView>&,
                                                      ThreadPool&, const LoadProgress&,
                                                      std::optional<uint64_t>);
  ModelSpec spec_;
  Weights<cpu::CpuWeight> weights_;
  KvIdentity id_;
  size_t packed_bytes_ = 0;
  cpu::Pages pages_;            // tiles
  std::vector<float> vectors_;  // gains and biases
};

// Packs every matrix on all threads of the pool. The tensors are needed only until it returns (views that are
// kept keep their file mapped). Throws kUnsupported for f64 weights and values beyond f16, kOutOfMemory.
// `digest`: WeightsDigest if known; else it is computed.
std::shared_ptr<const CpuModel> LoadCpuModel(const ModelSpec& spec, const Weights<TensorView>& tensors,
                                             ThreadPool& pool, const LoadProgress& progress = {},
                                             std::optional<uint64_t> digest = {});

// Bytes that running a model on the CPU takes besides the memory of sequences (kCpuMemory), computed from its
// description alone.
struct CpuMemory {
  size_t weights = 0;
  size_t activations = 0;  // maximum for steps of max_rows rows of which one needs logits
};
CpuMemory EstimateCpuMemory(const ModelSpec& spec, const Weights<TensorView>& tensors, int max_rows);

// How the CPU backend keeps keys and values.
inline constexpr MemoryFormat kCpuMemory{.kv = DType::kF16};

}  // namespace pd
