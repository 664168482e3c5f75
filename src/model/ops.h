// The vocabulary of Forward: about ten coarse operations on matrices. A backend is a type that has them.
#pragma once
#include <concepts>
#include <optional>
#include <utility>

#include "model/rows.h"
#include "model/spec.h"
#include "model/weights.h"

namespace pd {

// A Tensor is a matrix [N, C]: a row per token, C channels. No operation names an axis, reshapes or
// transposes; heads are a count, so the layout in memory is the backend's own business. What comes by value
// may be overwritten in place. Tensors are moved where Forward needs them no longer: their C++ lifetime is
// the memory plan.
template <class O>
concept Ops = requires(O o, typename O::Tensor x, const typename O::Tensor& c, const typename O::Tensor* up,
                       const typename O::Weight& w, const LinearWeights<typename O::Weight>& l,
                       const NormWeights<typename O::Weight>& g, const Rows& r, const NormSpec& n,
                       const RopeSpec& p, const AttentionSpec& a, const GateSpec& s) {
  // [N, width]: rows of the table by r.ids, times scale.
  { o.Embed(w, 1.f, r) } -> std::same_as<typename O::Tensor>;
  // Each row normed; gain and bias are [C].
  { o.Norm(c, g, n) } -> std::same_as<typename O::Tensor>;
  // Each of `heads` equal parts of a row normed alone, all with the same gain and bias [C / heads].
  { o.NormHeads(c, g, n, 1) } -> std::same_as<typename O::Tensor>;
  // x * weight^T + bias.
  { o.Linear(c, l) } -> std::same_as<typename O::Tensor>;
  // Each of `heads` equal parts turned by its row's position.
  { o.Rope(std::move(x), 1, p, r) } -> std::same_as<typename O::Tensor>;
  // Keys [N, K*D] and values [N, K*v_dim] of these rows join the layer's cache.
  { o.Append(0, a, std::move(x), std::move(x), r) } -> std::same_as<void>;
  // Queries [N, H*D] against what the row's slot holds of that layer up to the row's position, within
  // a.window: [N, H*v_dim].
  { o.Attend(0, a, std::move(x), r) } -> std::same_as<typename O::Tensor>;
  // act(x) * up, as GateSpec says; act(x) without `up`.
  { o.Gate(std::move(x), up, s) } -> std::same_as<typename O::Tensor>;
  // x + scale * y.
  { o.Add(std::move(x), c, 1.f) } -> std::same_as<typename O::Tensor>;
  // cap * tanh(scale * logits / cap), [r.logits.size(), vocab], of the rows that r.logits names; x is the
  // whole residual stream after the final norm.
  { o.Logits(c, w, std::optional<float>(), 1.f, r) } -> std::same_as<typename O::Tensor>;
};

// Optional members, found with `requires`; each fused form has its composition in mixers.h beside it and a
// test that compares the two:
//   void BeginLayer(int layer, Tensor& x)       may replace x: one package shard ends here, the next begins
//   void RawKeys(int layer, const Tensor& k)    shown the keys before their rotation
//   std::array<Tensor, 3> Qkv(x, q, k, v)       three Linear
//   Tensor GatedMlp(x, gate, up, down, GateSpec)  down(act(gate x) * up x)
//
// A mixer with a state brings an operation of its own, optional like these. A backend without it refuses the
// model when it is loaded (model/support.h), so Forward never meets it.
}  // namespace pd
