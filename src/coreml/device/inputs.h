// The inputs of a prefill program that the host computes: embedded tokens, rotation tables, masks.
#pragma once
#include <span>
#include <vector>

#include "coreml/device/predictor.h"
#include "coreml/mil/prefill.h"
#include "device/chunk_plan.h"
#include "device/device.h"
#include "model/rows.h"
#include "model/tensor.h"

namespace pd {

// Makes them in buffers that are reused by the next call of the same shape. Owned by one thread.
class InputMaker {
 public:
  InputMaker(const ModelSpec& spec, const TensorView& embed, float stream_scale, mil::AttentionForm form)
      : spec_(spec), embed_(embed), scale_(spec.embed_scale * stream_scale), form_(form) {}

  // Adds x (1, C, 1, T) for call.count ids; the remaining columns are zero.
  void AddEmbedded(const PlannedCall& call, std::span<const TokenId> ids, HalfTensors& inputs);
  // Adds cos and sin of every rotation and the mask of every window, for the call's positions.
  void AddTables(const PlannedCall& call, const RopeVariant& variant, HalfTensors& inputs);

 private:
  std::vector<F16>& Buffer(const std::string& name, size_t elements);
  void Add(const std::string& name, const mil::Dims& shape, HalfTensors& inputs) const;
  void FillRope(const mil::RopeInput& input, const PlannedCall& call, const RopeVariant& variant);
  void FillMask(const mil::MaskInput& input, const PlannedCall& call);

  const ModelSpec& spec_;
  const TensorView& embed_;
  float scale_;
  mil::AttentionForm form_;
  std::map<std::string, std::vector<F16>> buffers_;  // by input name
};

}  // namespace pd
