// The transformer: one definition for every family, lowered by every backend.
#pragma once
#include <optional>
#include <utility>

#include "model/ops.h"

namespace pd {

// Queries or keys made ready for attention: normed per head, then rotated.
template <Ops O>
typename O::Tensor Place(O& o, int layer, const AttentionSpec& a, int heads, typename O::Tensor t,
                         const std::optional<typename O::Weight>& gain, bool keys, const Rows& rows) {
  if (a.qk_norm) t = o.Norm(t, *gain, *a.qk_norm, heads);
  if constexpr (requires { o.RawKeys(layer, t); }) {
    if (keys) o.RawKeys(layer, t);
  }
  return a.rope ? o.Rope(std::move(t), heads, *a.rope, rows) : std::move(t);
}

template <class T>
struct Projected {
  std::optional<T> q;  // [N, H*D]; absent when only keys and values are wanted
  T k, v;              // [N, K*D]
};

template <Ops O>
Projected<typename O::Tensor> Project(O& o, const LayerWeights<typename O::Weight>& w,
                                      const typename O::Tensor& h, bool kv_only) {
  if constexpr (requires { o.Qkv(h, w.q, w.k, w.v); }) {
    if (!kv_only) {
      auto [q, k, v] = o.Qkv(h, w.q, w.k, w.v);
      return {std::move(q), std::move(k), std::move(v)};
    }
  }
  auto k = o.Linear(h, w.k);
  auto v = o.Linear(h, w.v);
  if (kv_only) return {std::nullopt, std::move(k), std::move(v)};
  auto q = o.Linear(h, w.q);
  return {std::move(q), std::move(k), std::move(v)};
}

// The attention block on the normed stream h [N, width]. Without a result when only keys and values are
// wanted. One op a statement: the order of arguments is the compiler's, the order of an exported program is
// ours.
template <Ops O>
std::optional<typename O::Tensor> Attention(O& o, int layer, const AttentionSpec& a,
                                            const LayerWeights<typename O::Weight>& w,
                                            const typename O::Tensor& h, const Rows& rows, bool kv_only) {
  auto [q, k, v] = Project(o, w, h, kv_only);
  k = Place(o, layer, a, a.kv_heads, std::move(k), w.k_gain, true, rows);
  o.Append(layer, a, std::move(k), std::move(v), rows);
  if (kv_only) return std::nullopt;
  q = Place(o, layer, a, a.heads, *std::move(q), w.q_gain, false, rows);
  auto y = o.Attend(layer, a, *std::move(q), rows);  // [N, H*D]
  return o.Linear(y, w.o);
}

template <Ops O>
typename O::Tensor Mlp(O& o, const MlpSpec& s, const LayerWeights<typename O::Weight>& w,
                       const typename O::Tensor& h) {
  if constexpr (requires { o.GatedMlp(h, w.gate, w.up, w.down, s.activation); }) {
    return o.GatedMlp(h, w.gate, w.up, w.down, s.activation);
  } else {
    auto gate = o.Linear(h, w.gate);    // [N, hidden]
    const auto up = o.Linear(h, w.up);  // [N, hidden]
    gate = o.Gate(std::move(gate), up, s.activation);
    return o.Linear(gate, w.down);
  }
}

// Logits [rows.logits.size(), vocab], or nothing when rows.logits is empty: then the last layer stops at its
// keys and values, which nothing after it reads.
template <Ops O>
std::optional<typename O::Tensor> Forward(O& o, const ModelSpec& m, const Weights<typename O::Weight>& w,
                                          const Rows& rows) {
  auto x = o.Embed(w.embed, m.embed_scale, rows);  // [N, width]: the residual stream
  const int count = int(m.layers.size());
  for (int i = 0; i < count; ++i) {
    const LayerSpec& s = m.layers[size_t(i)];
    const auto& l = w.layers[size_t(i)];
    if constexpr (requires { o.BeginLayer(i, x); }) o.BeginLayer(i, x);
    auto h = o.Norm(x, l.pre_attn, s.pre_attn, 1);
    auto y = Attention(o, i, s.attn, l, h, rows, rows.logits.empty() && i + 1 == count);
    if (!y) return std::nullopt;
    if (s.post_attn) y = o.Norm(*y, *l.post_attn, *s.post_attn, 1);
    x = o.Add(std::move(x), *y);
    h = o.Norm(x, l.pre_mlp, s.pre_mlp, 1);
    y = Mlp(o, s.mlp, l, h);
    if (s.post_mlp) y = o.Norm(*y, *l.post_mlp, *s.post_mlp, 1);
    x = o.Add(std::move(x), *y);
  }
  const auto h = o.Norm(x, w.final_norm, m.final_norm, 1);
  return o.Logits(h, w.HeadOrEmbed(), m.logit_cap, rows);
}

}  // namespace pd
