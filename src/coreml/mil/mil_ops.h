// Forward lowered to Core ML programs for the Neural Engine.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coreml/mil/builder.h"
#include "coreml/mil/encoded.h"
#include "coreml/mil/prefill.h"
#include "kv/segment.h"
#include "model/forward.h"

namespace pd::mil {

struct LoweringOptions {
  AttentionForm attention = AttentionForm::kHeads;
  KeyForm keys = KeyForm::kRotated;
};

// An Ops type (model/ops.h) that writes ops instead of computing. The residual stream is (1, C, 1, T)
// throughout; heads are a view [1, heads, D, T] of the same data, so nothing is transposed in between. Inputs
// and constants are added at their first use. The forms and the evidence for them: docs/decisions/coreml.md.
class MilOps {
 public:
  using Weight = const EncodedWeight*;
  // A result and its view: heads 0 for the stream's form, else [1, heads, C / heads, T].
  struct Tensor {
    std::string name;
    int channels = 0, heads = 0;
  };

  // `shard_begins`: the layers that start a new program, including the first layer.
  MilOps(const ModelSpec& spec, const RangeScales& scales, const LoweringOptions& options,
         const PrefillShape& shape, const std::vector<int>& shard_begins);

  Tensor Embed(const Weight& table, float scale, const Rows& rows);
  Tensor Norm(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& norm);
  Tensor NormHeads(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& norm, int heads);
  Tensor Linear(const Tensor& x, const LinearWeights<Weight>& w);
  Tensor Rope(const Tensor& x, int heads, const RopeSpec& rope, const Rows& rows);
  void Append(int layer, const AttentionSpec& a, Tensor k, Tensor v, const Rows& rows);
  Tensor Attend(int layer, const AttentionSpec& a, const Tensor& q, const Rows& rows);
  Tensor Gate(const Tensor& x, const Tensor* up, const GateSpec& gate);
  Tensor Add(const Tensor& x, const Tensor& y, float scale);
  Tensor Logits(const Tensor& x, const Weight& head, std::optional<float> cap, float scale, const Rows& rows);
  void BeginLayer(int layer, Tensor& x);
  void RawKeys(int layer, const Tensor& keys);

  // One function per shard, in order.
  std::vector<Function> Finish() &&;

 private:
  struct Cached {
    Tensor keys, values;  // of this chunk
  };

  std::string View(const Tensor& x, int heads);
  std::string Slice(const std::string& x, size_t axis, int64_t first, int64_t count);
  std::string Concat(const std::vector<std::string>& values, int axis);
  std::string Binary(const char* op, const std::string& x, const std::string& y);
  std::string Scaled(const std::string& x, float factor);
  std::string MatMul(const std::string& x, const std::string& y, bool transpose_x, bool transpose_y);
  std::string Constant(const EncodedWeight& weight, const EncodedPart& part);
  // In `heads` parts; 0: whole rows.
  Tensor Normed(const Tensor& x, int heads, const NormWeights<Weight>& w, const NormSpec& norm);
  std::string Conv(const std::string& x, const std::string& weight, const std::string& bias);

  // attention.cc
  std::string WithPast(const AttentionSpec& a, const std::string& past, const Tensor& fresh);
  std::string Probabilities(const AttentionSpec& a, std::string scores, const std::string& mask, int axis);
  std::string AttendHeads(const AttentionSpec& a, const Tensor& q, const std::string& k,
                          const std::string& v);
  std::string AttendChannels(const AttentionSpec& a, const Tensor& q, const std::string& k,
                             const std::string& v);
  std::string AttendGrouped(const AttentionSpec& a, const Tensor& q, const std::string& k,
                            const std::string& v);
  template <class F>
  std::string Tiled(const std::string& q, const std::string& mask, size_t mask_axis, int64_t heads, F attend);
  std::string Mask(const AttentionSpec& a);

  const ModelSpec& spec_;
  const RangeScales& scales_;
  LoweringOptions options_;
  PrefillShape shape_;
  PrefillInterface interface_;
  std::vector<int> shard_begins_;
  FunctionBuilder builder_;
  std::vector<Function> finished_;
  std::map<int, Cached> cached_;  // by layer
};

// The functions of every shard for one shape; weights as placed by EncodeWeights.
std::vector<Function> LowerPrefill(const ModelSpec& spec, const Weights<const EncodedWeight*>& weights,
                                   const RangeScales& scales, const LoweringOptions& options,
                                   const PrefillShape& shape, const std::vector<int>& shard_begins);

}  // namespace pd::mil
