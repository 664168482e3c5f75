// The operations of Forward on the CPU, and the state that makes them a device.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "cpu/arena.h"
#include "cpu/kv_cache.h"
#include "cpu/model.h"
#include "device/local_device.h"

namespace pd::cpu {

// A Backend (device/local_device.h). Activations are float matrices, sums are in float, products with
// quantised weights take activations in 8 bits by groups of 32, keys and values are kept in binary16. A row's
// result has the same bits in any batch and chunking, with any number of threads, at every level. Used by one
// thread. Steps allocate nothing once a step of that size and a slot of that capacity have been seen.
class CpuBackend {
 public:
  using Weight = CpuWeight;
  using Tensor = Matrix;

  // `kv_limit`: size limit in bytes of all open slots at full length. `cancelled`: as in CpuDeviceOptions.
  CpuBackend(std::shared_ptr<const CpuModel> model, std::shared_ptr<ThreadPool> pool, const Kernels& kernels,
             size_t kv_limit, std::function<bool()> cancelled = {});
  ~CpuBackend();
  CpuBackend(CpuBackend&&) noexcept;
  CpuBackend& operator=(CpuBackend&&) = delete;

  void BeginLayer(int layer, Matrix& x);  // throws kCancelled
  Matrix Embed(const Weight& table, float scale, const Rows& rows);
  Matrix Norm(const Matrix& x, const NormWeights<Weight>& w, const NormSpec& spec);
  Matrix NormHeads(const Matrix& x, const NormWeights<Weight>& w, const NormSpec& spec, int heads);
  Matrix Linear(const Matrix& x, const LinearWeights<Weight>& w);
  Matrix Rope(Matrix x, int heads, const RopeSpec& spec, const Rows& rows);
  void Append(int layer, const AttentionSpec& a, Matrix k, Matrix v, const Rows& rows);
  Matrix Attend(int layer, const AttentionSpec& a, Matrix q, const Rows& rows);
  Matrix Gate(Matrix x, const Matrix* up, const GateSpec& spec);
  Matrix Add(Matrix x, const Matrix& y, float scale);
  Matrix Logits(const Matrix& x, const Weight& head, std::optional<float> cap, float scale, const Rows& rows);
  // Fused: q, k and v read and quantise x once, in one parallel region; values of gate and up never leave the
  // cache.
  std::array<Matrix, 3> Qkv(const Matrix& x, const LinearWeights<Weight>& q, const LinearWeights<Weight>& k,
                            const LinearWeights<Weight>& v);
  Matrix GatedMlp(const Matrix& x, const LinearWeights<Weight>& gate, const LinearWeights<Weight>& up,
                  const LinearWeights<Weight>& down, const GateSpec& spec);

  const ModelSpec& Spec() const;
  const Weights<Weight>& ModelWeights() const;
  KvIdentity Identity() const;
  SlotId OpenSlot(int capacity, const Variant& variant);
  void CloseSlot(SlotId slot);
  void BeginRows(const Rows& rows);
  void TruncateSlot(SlotId slot, int count);
  void ImportRows(SlotId slot, const KvSegment& segment);
  KvSegment ExportRows(SlotId slot, int first, int count);  // a copy
  std::span<const float> ReadLogits(const Matrix& logits);

 private:
  struct State;
  std::unique_ptr<State> state_;  // at a fixed address: matrices point to their arena
};

}  // namespace pd::cpu
