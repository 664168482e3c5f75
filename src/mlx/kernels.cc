#include "mlx/kernels.h"

#include <algorithm>
#include <numbers>

namespace pd {
namespace {

mx::array Scalar(float value, const mx::array& like) { return mx::array(value, like.dtype()); }

// One run's queries [1, H, T, D] against its slot's keys and values [1, K, S', D] of tokens [low, first +
// count).
mx::array AttendRun(const AttentionSpec& a, const mx::array& q, const mx::array& k, const mx::array& v,
                    int first, int low) {
  const int count = q.shape(2), keys = k.shape(2);
  // Row i sees token low + j if that is not later and is within the window.
  const auto mask = [&] {
    const mx::array key = mx::expand_dims(mx::arange(low, low + keys, mx::int32), 0);
    const mx::array row = mx::expand_dims(mx::arange(first, first + count, mx::int32), 1);
    mx::array seen = mx::less_equal(key, row);
    if (a.window) seen = mx::logical_and(seen, mx::greater(key, row - mx::array(a.window->size)));
    return seen;  // [T, S']
  };
  const bool masked = count > 1 && a.window;
  if (!a.soft_cap) {
    if (masked) return mx::fast::scaled_dot_product_attention(q, k, v, a.scale, "array", mask());
    return mx::fast::scaled_dot_product_attention(q, k, v, a.scale, count > 1 ? "causal" : "");
  }
  const int group = a.heads / a.kv_heads;
  const mx::array grouped = mx::reshape(mx::astype(q, mx::float32), {a.kv_heads, group, count, a.head_dim});
  const auto shared = [&](const mx::array& x) {
    return mx::reshape(mx::astype(x, mx::float32), {a.kv_heads, 1, keys, a.head_dim});
  };
  mx::array scores =
      SoftCap(mx::matmul(grouped * mx::array(a.scale), mx::swapaxes(shared(k), -1, -2)), *a.soft_cap);
  if (count > 1) scores = mx::where(mask(), scores, mx::array(-INFINITY));
  const mx::array out = mx::matmul(mx::softmax(scores, -1), shared(v));  // [K, G, T, D]
  return mx::astype(mx::reshape(out, {1, a.heads, count, a.head_dim}), q.dtype());
}

}  // namespace

mx::array Turn(const mx::array& x, const mx::array& angles) {
  const int n = x.shape(0), heads = x.shape(1), head_dim = x.shape(2), half = angles.shape(1) / 2;
  const mx::array f = mx::astype(x, mx::float32);
  const auto part = [&](const mx::array& a, int from, int to) {
    return mx::slice(a, {0, 0, from}, {n, a.shape(1), to});
  };
  const mx::array by_row = mx::expand_dims(angles, 1);
  const mx::array cos = part(by_row, 0, half), sin = part(by_row, half, 2 * half);
  const mx::array a = part(f, 0, half), b = part(f, half, 2 * half);
  const mx::array turned = mx::concatenate({a * cos - b * sin, b * cos + a * sin}, 2);
  mx::array result = mx::astype(turned, x.dtype());
  if (2 * half == head_dim) return result;
  return mx::concatenate({result, mx::slice(x, {0, 0, 2 * half}, {n, heads, head_dim})}, 2);
}

mx::array RmsNorm(const mx::array& x, const MlxNorm& norm, int groups) {
  if (groups == 1) return mx::fast::rms_norm(x, norm.gain, norm.eps);
  const mx::Shape& shape = x.shape();
  const mx::array parts = mx::reshape(x, {shape[0] * groups, shape[1] / groups});
  return mx::reshape(mx::fast::rms_norm(parts, norm.gain, norm.eps), shape);
}

mx::array Activate(const mx::array& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return x * mx::sigmoid(x);
    case Activation::kGelu:
      return Scalar(0.5f, x) * x * (Scalar(1, x) + mx::erf(x * Scalar(float(1 / std::numbers::sqrt2), x)));
    case Activation::kGeluTanh: {
      const float root = float(std::sqrt(2 / std::numbers::pi));
      const mx::array inner = Scalar(root, x) * (x + Scalar(0.044715f, x) * x * x * x);
      return Scalar(0.5f, x) * x * (Scalar(1, x) + mx::tanh(inner));
    }
    case Activation::kRelu2:
      return mx::square(mx::maximum(x, Scalar(0, x)));
    case Activation::kSigmoid:
      return mx::sigmoid(x);
    case Activation::kTanh:
      return mx::tanh(x);
    case Activation::kIdentity:
      break;
  }
  return x;
}

mx::array SoftCap(const mx::array& x, float cap) { return Scalar(cap, x) * mx::tanh(x / Scalar(cap, x)); }

mx::array MlxKernels::Project(const MlxProjection& p) {
  const mx::array x = p.norm ? RmsNorm(p.x, *p.norm, 1) : p.x;
  mx::array y = Product(x, p.weights.weight);
  if (p.weights.bias) y = y + *p.weights.bias->values;
  if (p.gate) y = Gate(y, *p.gate);
  return p.residual ? y + *p.residual : y;
}

mx::array MlxKernels::Place(const MlxPlacement& p, const MlxPlan& plan, MlxLayerCache& cache) {
  const AttentionSpec& a = p.attention;
  const auto place = [&](const MlxColumns& columns, const MlxNorm* norm, int heads) {
    mx::array x = columns.Array();
    if (norm) x = RmsNorm(x, *norm, heads);
    x = mx::reshape(x, {plan.count, heads, a.head_dim});
    return p.angles ? Turn(x, mx::take(*p.angles, *p.angle, 0)) : x;  // [N, heads, D]
  };
  const auto store = [&](mx::array& into, const mx::array& rows) {
    into = mx::scatter(into, {plan.slot, plan.pos},
                       mx::reshape(rows, {plan.count, 1, a.kv_heads, 1, a.head_dim}), {0, 2});
  };
  store(cache.k, place(p.k, p.k_norm, a.kv_heads));
  store(cache.v, mx::reshape(p.v.Array(), {plan.count, a.kv_heads, a.head_dim}));
  if (!p.q) return cache.v;
  return mx::reshape(place(*p.q, p.q_norm, a.heads), {plan.count, a.q_width()});
}

mx::array MlxKernels::Attend(const AttentionSpec& a, const mx::array& q, const MlxPlan& plan,
                             const MlxLayerCache& cache) {
  std::vector<mx::array> outputs;
  for (const MlxRun& run : plan.runs) {
    const int end = run.first + run.count, low = a.window ? std::max(0, run.first - a.window->size + 1) : 0;
    const auto keys = [&](const mx::array& all) {
      return mx::slice(all, {run.slot, 0, low, 0}, {run.slot + 1, a.kv_heads, end, a.head_dim});
    };
    mx::array rows = mx::slice(q, {run.row, 0}, {run.row + run.count, a.q_width()});
    rows = mx::swapaxes(mx::reshape(rows, {1, run.count, a.heads, a.head_dim}), 1, 2);  // [1, H, T, D]
    const mx::array out = AttendRun(a, rows, keys(cache.k), keys(cache.v), run.first, low);
    outputs.push_back(mx::reshape(mx::swapaxes(out, 1, 2), {run.count, a.q_width()}));
  }
  return outputs.size() == 1 ? outputs[0] : mx::concatenate(std::move(outputs), 0);
}

mx::array MlxKernels::Gate(const mx::array& x, Activation activation) {
  const int half = x.shape(1) / 2;
  return Activate(Columns(x, 0, half), activation) * Columns(x, half, 2 * half);
}

MlxChoice MlxKernels::Greedy(const mx::array& logits) {
  const mx::array values = mx::astype(logits, mx::float32), token = mx::argmax(values, -1);  // [R]
  const mx::array chosen = mx::take_along_axis(values, mx::expand_dims(token, 1), 1);
  return MakeChoice(mx::astype(token, mx::int32), mx::squeeze(chosen, 1) - mx::logsumexp(values, -1));
}

mx::array MlxKernels::Rows(const MlxWeight& table, const mx::array& ids, float scale, mx::Dtype activations) {
  const mx::array rows = TakeRows(table, ids, activations);
  return scale == 1 ? rows : rows * mx::array(scale, activations);
}

MlxChoice MakeChoice(const mx::array& tokens, const mx::array& logprobs) {
  return {tokens, mx::stack({tokens, mx::view(logprobs, mx::int32)}, 1)};
}

}  // namespace pd
