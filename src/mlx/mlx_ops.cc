#include "mlx/mlx_ops.h"

#include "base/error.h"

namespace pd {
namespace {

constexpr int kManyRows =
    256;  // above this, a step's intermediate results take more memory than its kernels take launches

}  // namespace

// Intermediate results of a step are freed when the device gets there, and the host is far ahead of it: those
// of a long prompt would all exist at once. So the host waits here until the layer before the last one is
// done.
void MlxOps::SubmitLayer(int layer, const Tensor& x) {
  if (layer == 0) last_layer_.reset();
  if (plan_.count < kManyRows) return;
  const mx::array stream = Array(x);
  mx::async_eval(stream);
  if (last_layer_) last_layer_->wait();
  last_layer_ = stream;
}

MlxTensor MlxOps::Embed(const Weight& table, float scale, const Rows&) {
  return Tensor(kernels_->Rows(table, ids_, scale, activations_));
}

MlxTensor MlxOps::Norm(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& spec) {
  if (spec.mean || !w.gain) {  // computed now: the fused kernels need an RMSNorm with a gain
    const auto value = [](const std::optional<Weight>& vector) {
      return vector ? std::optional(*vector->values) : std::nullopt;
    };
    const mx::array in = Array(x);
    if (spec.mean) return Tensor(mx::fast::layer_norm(in, value(w.gain), value(w.bias), spec.eps));
    return Tensor(mx::fast::rms_norm(in, std::nullopt, spec.eps));
  }
  return NormHeads(x, w, spec, 1);
}

MlxTensor MlxOps::NormHeads(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& spec, int heads) {
  if (!w.gain) {
    const mx::array in = Array(x);
    const mx::array parts = mx::reshape(in, {in.shape(0), heads, -1});
    return Tensor(mx::reshape(mx::fast::rms_norm(parts, std::nullopt, spec.eps), in.shape()));
  }
  Node node;
  node.input = x.node_;
  node.norm = MlxNorm{*w.gain->values, spec.eps};
  node.groups = heads;
  return Tensor(std::move(node));
}

MlxTensor MlxOps::Linear(const Tensor& x, const LinearWeights<Weight>& w) {
  Node node;
  node.input = x.node_;
  node.linear = &w;
  return Tensor(std::move(node));
}

MlxTensor MlxOps::Rope(Tensor x, int heads, const RopeSpec& spec, const Rows&) {
  Node node;
  node.input = std::move(x.node_);
  node.rope = &spec;
  node.heads = heads;
  return Tensor(std::move(node));
}

void MlxOps::Append(int layer, const AttentionSpec& a, Tensor k, Tensor v, const Rows&) {
  append_.emplace(PendingAppend{layer, &a, std::move(k), std::move(v)});
}

MlxTensor MlxOps::Attend(int layer, const AttentionSpec& a, Tensor q, const Rows&) {
  PD_CHECK(append_ && append_->layer == layer);
  const PendingAppend append = *std::move(append_);
  append_.reset();
  const MlxPlacement placement = Placement(append, q.node_.get());
  MlxLayerCache& cache = cache_.layers[size_t(layer)];
  if (const auto attended = kernels_->PlaceAndAttend(placement, plan_, cache)) return Tensor(*attended);
  return Tensor(kernels_->Attend(a, kernels_->Place(placement, plan_, cache), plan_, cache));
}

std::optional<mx::array> MlxOps::FlushAppend() {
  if (!append_) return std::nullopt;
  const PendingAppend append = *std::move(append_);
  append_.reset();
  return kernels_->Place(Placement(append, nullptr), plan_, cache_.layers[size_t(append.layer)]);
}

MlxTensor MlxOps::Gate(Tensor x, const Tensor* up, const GateSpec& spec) {
  if (!up) return Tensor(Activate(Array(x), spec.act));
  const Node &g = *x.node_, &u = *up->node_;
  const auto* stack = g.linear && !g.value ? g.linear->weight.stack.get() : nullptr;
  if (stack && u.linear && !u.value && u.linear->weight.stack.get() == stack && u.input == g.input)
    return Tensor(Project(*g.input, *stack, &spec.act, nullptr));
  return Tensor(Activate(Array(x), spec.act) * Array(*up));
}

MlxTensor MlxOps::Add(Tensor x, const Tensor& y, float scale) {
  const mx::array sum = Array(x);
  if (scale != 1) return Tensor(sum + Array(y) * mx::array(scale, activations_));
  if (y.node_->linear && !y.node_->value)
    return Tensor(Project(*y.node_->input, *y.node_->linear, nullptr, &sum));
  return Tensor(sum + Array(y));
}

MlxTensor MlxOps::Logits(const Tensor& x, const Weight& head, std::optional<float> cap, float scale,
                         const Rows&) {
  // Picks rows before the final norm, so that it has fewer of them.
  Node node = *x.node_;
  if (logit_rows_) {
    if (node.norm && !node.value && node.groups == 1) {
      node.input = Tensor(mx::take(Force(*node.input).Array(), *logit_rows_, 0)).node_;
    } else {
      node = MlxTensor::Of(mx::take(Force(node).Array(), *logit_rows_, 0));
    }
  }
  const LinearWeights<Weight> weights{head, {}};
  mx::array logits = Project(node, weights, nullptr, nullptr);
  if (scale != 1) logits = mx::astype(logits, mx::float32) * mx::array(scale);
  return Tensor(cap ? SoftCap(mx::astype(logits, mx::float32), *cap) : logits);
}

const MlxColumns& MlxOps::Force(Node& node) {
  if (node.value) return *node.value;
  const auto whole = [](mx::array a) {
    const int width = a.shape(1);
    return MlxColumns{std::move(a), 0, width};
  };
  if (node.norm) {
    node.value = whole(RmsNorm(Force(*node.input).Array(), *node.norm, node.groups));
  } else if (node.linear) {
    node.value = Multiply(*node.input, *node.linear);
  } else {
    PD_CHECK(node.rope);
    const mx::array x = Force(*node.input).Array();
    const mx::array by_head = mx::reshape(x, {x.shape(0), node.heads, x.shape(1) / node.heads});
    const mx::array angles = mx::take(tables_.Angles(*node.rope), tables_.Angle(), 0);
    node.value = whole(mx::reshape(Turn(by_head, angles), x.shape()));
  }
  node.input.reset();
  return *node.value;
}

// A part of a stacked product if the weights are part of a stack, so that all its parts are computed
// together.
MlxColumns MlxOps::Multiply(Node& input, const LinearWeights<Weight>& w) {
  const auto* stack = w.weight.stack.get();
  if (!stack) {
    mx::array product = Project(input, w, nullptr, nullptr);
    return {std::move(product), 0, w.weight.out()};
  }
  if (input.stack != stack) {
    input.stack_product = Project(input, *stack, nullptr, nullptr);
    input.stack = stack;
  }
  return {*input.stack_product, w.weight.stack_row, w.weight.out()};
}

mx::array MlxOps::Project(Node& input, const LinearWeights<Weight>& w, const Activation* gate,
                          const mx::array* residual) {
  if (input.norm && !input.value && input.groups == 1) {
    const mx::array x = Force(*input.input).Array();
    return kernels_->Project({x, &*input.norm, w, gate, residual});
  }
  const mx::array x = Force(input).Array();
  return kernels_->Project({x, nullptr, w, gate, residual});
}

MlxPlacement MlxOps::Placement(const PendingAppend& append, Node* q) {
  const AttentionSpec& a = *append.attention;
  // Takes the rotation, then the norm of heads, from a node; the rest is computed.
  const bool turned_last = a.rope && !(a.qk_norm && a.qk_norm->after_rope);
  const auto unwrap = [&](Node& node, int heads, const MlxNorm** norm) -> const MlxColumns& {
    *norm = nullptr;
    if (a.rope && !turned_last) return Force(node);
    Node& inner = node.rope ? *node.input : node;
    if (!inner.norm || inner.value || inner.groups != heads) return Force(inner);
    *norm = &*inner.norm;
    return Force(*inner.input);
  };
  const MlxNorm *q_norm = nullptr, *k_norm = nullptr;
  const MlxColumns* queries = q ? &unwrap(*q, a.heads, &q_norm) : nullptr;
  const MlxColumns& keys = unwrap(*append.k.node_, a.kv_heads, &k_norm);
  const MlxColumns& values = Force(*append.v.node_);
  MlxPlacement p{a, queries, keys, values, q_norm, k_norm};
  if (turned_last) p.angles = &tables_.Angles(*a.rope), p.angle = &tables_.Angle();
  return p;
}

}  // namespace pd
