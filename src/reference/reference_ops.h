// The reference that every backend is tested against: double precision, plain loops.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/local_device.h"
#include "model/tensor.h"

namespace pd {

struct ReferenceModel {
  ModelSpec spec;
  Weights<std::vector<double>> weights;
  KvIdentity id;
};
// Dequantises every tensor to double. `digest`: WeightsDigest if known; else it is computed.
std::shared_ptr<const ReferenceModel> LoadReferenceModel(const ModelSpec& spec,
                                                         const Weights<TensorView>& tensors,
                                                         std::optional<uint64_t> digest = {});

inline constexpr MemoryFormat kReferenceMemory{.kv = DType::kF64};

// A Backend (device/local_device.h). Not thread-safe.
class ReferenceOps {
 public:
  using Weight = std::vector<double>;  // row-major
  struct Tensor {
    int rows = 0, channels = 0;
    std::vector<double> values;  // [rows, channels]
    double* Row(int r) { return &values[size_t(r) * size_t(channels)]; }
    const double* Row(int r) const { return &values[size_t(r) * size_t(channels)]; }
  };

  explicit ReferenceOps(std::shared_ptr<const ReferenceModel> model) : model_(std::move(model)) {}

  Tensor Embed(const Weight& table, float scale, const Rows& rows);
  Tensor Norm(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& spec);
  Tensor NormHeads(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& spec, int heads);
  Tensor Linear(const Tensor& x, const LinearWeights<Weight>& w);
  Tensor Rope(Tensor x, int heads, const RopeSpec& spec, const Rows& rows);
  void Append(int layer, const AttentionSpec& a, Tensor k, Tensor v, const Rows& rows);
  Tensor Attend(int layer, const AttentionSpec& a, Tensor q, const Rows& rows);
  Tensor Gate(Tensor x, const Tensor* up, const GateSpec& spec);
  Tensor Add(Tensor x, const Tensor& y, float scale);
  Tensor Logits(const Tensor& x, const Weight& head, std::optional<float> cap, float scale, const Rows& rows);

  const ModelSpec& Spec() const { return model_->spec; }
  const Weights<Weight>& ModelWeights() const { return model_->weights; }
  KvIdentity Identity() const { return model_->id; }
  SlotId OpenSlot(int capacity, const Variant& variant);
  void CloseSlot(SlotId slot) { slots_.erase(slot); }
  void BeginRows(const Rows&) {}
  void TruncateSlot(SlotId slot, int count);
  void ImportRows(SlotId slot, const KvSegment& segment);
  KvSegment ExportRows(SlotId slot, int first, int count);  // a copy, as f32
  const std::vector<float>& ReadLogits(const Tensor& logits);

 private:
  struct Layer {
    std::vector<double> keys, values;  // [tokens, K*D]
  };
  struct Slot {
    Variant variant;
    std::vector<Layer> layers;
  };
  std::shared_ptr<const ReferenceModel> model_;
  std::map<SlotId, Slot> slots_;
  SlotId next_slot_ = 0;
  std::vector<float> logits_;
};

std::unique_ptr<DecodeDevice> OpenReferenceDevice(std::shared_ptr<const ReferenceModel> model);

}  // namespace pd
