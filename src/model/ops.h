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
concept Ops = requires(O o, typename O::Tensor x, const typename O::Tensor& c, const typename O::Weight& w,
                       const LinearWeights<typename O::Weight>& l, const Rows& r, const NormSpec& n,
                       const RopeSpec& p, const AttentionSpec& a) {
  // [N, width]: rows of the table by r.ids, times scale.
  { o.Embed(w, 1.f, r) } -> std::same_as<typename O::Tensor>;
  // Each row in `groups` equal parts, each normed alone with the same gain [C / groups]. 1 for the residual
  // stream, the number of heads for q and k.
  { o.Norm(c, w, n, 1) } -> std::same_as<typename O::Tensor>;
  // x * weight^T + bias.
  { o.Linear(c, l) } -> std::same_as<typename O::Tensor>;
  // Each of `heads` equal parts turned by its row's position.
  { o.Rope(std::move(x), 1, p, r) } -> std::same_as<typename O::Tensor>;
  // Keys and values [N, K*D] of these rows join the layer's cache.
  { o.Append(0, a, std::move(x), std::move(x), r) } -> std::same_as<void>;
  // Queries [N, H*D] against what the row's slot holds up to the row's position, within a.window.
  { o.Attend(0, a, std::move(x), r) } -> std::same_as<typename O::Tensor>;
  // act(x) * up.
  { o.Gate(std::move(x), c, Activation::kSilu) } -> std::same_as<typename O::Tensor>;
  // x + y.
  { o.Add(std::move(x), c) } -> std::same_as<typename O::Tensor>;
  // [r.logits.size(), vocab] of the rows that r.logits names; x is the whole residual stream after the final
  // norm.
  { o.Logits(c, w, std::optional<float>(), r) } -> std::same_as<typename O::Tensor>;
};

// Optional members, found with `requires`; each fused form has its composition in forward.h beside it and a
// test that compares the two:
//   void   BeginLayer(int layer, Tensor& x)      may replace x: one package shard ends here, the next begins
//   void   RawKeys(int layer, const Tensor& k)   shown the keys before their rotation
//   Tensor GatedMlp(const Tensor& x, const LinearWeights& gate, const LinearWeights& up, const LinearWeights&
//   down,
//                   Activation)                  down(act(gate x) * up x)
//   std::array<Tensor, 3> Qkv(const Tensor& x, const LinearWeights& q, const LinearWeights& k, const
//   LinearWeights& v) Tensor AddNorm(Tensor& x, const Tensor& y, const Weight& gain, NormSpec)   x += y;
//   returns norm(x)
}  // namespace pd
