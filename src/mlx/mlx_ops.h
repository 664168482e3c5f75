// MlxOps: the operations of Forward over MLX arrays.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "mlx/kernels.h"
#include "mlx/rope_tables.h"
#include "model/ops.h"

namespace pd {

// A matrix [N, C], or how to compute it. Each small operation costs a launch, so one that the next operation
// can include in its own kernel is deferred: a norm before a product, a product before a gate or an addition,
// a norm and a rotation before keys are written to the cache. Copies share the matrix and its cached results.
class MlxTensor {
 public:
  explicit MlxTensor(mx::array ready) : node_(std::make_shared<Node>(Of(std::move(ready)))) {}

 private:
  friend class MlxOps;
  struct Node {
    std::optional<MlxColumns> value;  // set once computed
    // Otherwise computed from `input`:
    std::shared_ptr<Node> input;
    std::optional<MlxNorm> norm;  // normed, in `groups` parts of each row,
    int groups = 1;
    const LinearWeights<MlxWeight>* linear = nullptr;  // or multiplied,
    const RopeSpec* rope = nullptr;                    // or each head rotated.
    int heads = 0;
    // Products of this matrix with stacked weights, which serve several of Forward's products.
    const LinearWeights<MlxWeight>* stack = nullptr;
    std::optional<mx::array> stack_product;
  };
  static Node Of(mx::array ready) {
    const int width = ready.shape(1);
    Node node;
    node.value = MlxColumns{std::move(ready), 0, width};
    return node;
  }
  explicit MlxTensor(Node node) : node_(std::make_shared<Node>(std::move(node))) {}
  std::shared_ptr<Node> node_;
};

class MlxOps {
 public:
  using Tensor = MlxTensor;
  using Weight = MlxWeight;

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

 protected:
  MlxOps(const ModelSpec& spec, mx::Dtype activations, std::unique_ptr<MlxKernels> kernels)
      : activations_(activations), kernels_(std::move(kernels)), cache_(spec, activations), tables_(spec) {}

  mx::array Array(const Tensor& x) { return Force(*x.node_).Array(); }
  // Called before each layer, with the stream x: submits work layer by layer when the step has many rows.
  void SubmitLayer(int layer, const Tensor& x);
  // Stores the rows of an Append without an Attend. The result is computed once the cache holds them.
  std::optional<mx::array> FlushAppend();
  void DropAppend() { append_.reset(); }  // after a failed step

  mx::Dtype activations_;
  std::unique_ptr<MlxKernels> kernels_;
  MlxCache cache_;
  RopeTables tables_;
  MlxPlan plan_;
  mx::array ids_ = mx::array(0);         // [N] i32
  std::optional<mx::array> logit_rows_;  // [R] i32; nullopt: every row

 private:
  using Node = MlxTensor::Node;
  struct PendingAppend {
    int layer;
    const AttentionSpec* attention;
    Tensor k, v;
  };

  const MlxColumns& Force(Node& node);
  MlxColumns Multiply(Node& input, const LinearWeights<Weight>& w);
  mx::array Project(Node& input, const LinearWeights<Weight>& w, const Activation* gate,
                    const mx::array* residual);
  MlxPlacement Placement(const PendingAppend& append, Node* q);

  std::optional<PendingAppend> append_;
  std::optional<mx::array>
      last_layer_;  // the stream before the latest layer, when layers are submitted one by one
};

}  // namespace pd
