// The list of a model's tensors: the only one in the program. Loaders, backends, exporters and counters all
// walk it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/spec.h"

namespace pd {

using Shape = std::vector<int64_t>;

// What a tensor is for. A backend may fold constants into a weight by its role where it writes the weight
// (the score scale into kQuery, say); Forward never does.
enum class Role : uint8_t { kEmbed, kGain, kQueryGain, kLinear, kQuery, kBias, kQueryBias, kHead };

struct WeightInfo {
  std::string name;  // unique and stable: "embed", "layers.3.q", "layers.3.q.bias"
  std::string part;  // the name without its layer: "q", "q.bias"
  Shape shape;       // [out, in] for a matrix, [n] for a vector
  Role role;
  int layer;  // -1: embed, final_norm, head
};

template <class W>
struct LinearWeights {
  W weight;               // [out, in]
  std::optional<W> bias;  // [out]
};

template <class W>
struct LayerWeights {
  W pre_attn;                       // [width]
  LinearWeights<W> q, k, v, o;      // [H*D, width], [K*D, width] twice, [width, H*D]
  std::optional<W> q_gain, k_gain;  // [D]
  std::optional<W> post_attn;       // [width]
  W pre_mlp;                        // [width]
  LinearWeights<W> gate, up, down;  // [hidden, width] twice, [width, hidden]
  std::optional<W> post_mlp;        // [width]
};

template <class W>
struct Weights {
  W embed;  // [vocab, width]
  std::vector<LayerWeights<W>> layers;
  W final_norm;           // [width]
  std::optional<W> head;  // [vocab, width]; absent when tied
  const W& HeadOrEmbed() const { return head ? *head : embed; }
};

// Calls fn(W&, const WeightInfo&) for every tensor that the spec has, in a fixed order, making room for it
// first.
template <class W, class F>
void ForEachWeight(const ModelSpec& m, Weights<W>& w, F fn) {
  int layer = -1;
  const auto visit = [&](W& weight, const std::string& part, const Shape& shape, Role role) {
    const std::string prefix = layer < 0 ? "" : "layers." + std::to_string(layer) + ".";
    fn(weight, WeightInfo{prefix + part, part, shape, role, layer});
  };
  const auto present = [](std::optional<W>& weight) -> W& { return weight ? *weight : weight.emplace(); };
  const auto linear = [&](LinearWeights<W>& l, const std::string& part, int64_t out, int64_t in, bool bias,
                          Role role = Role::kLinear) {
    visit(l.weight, part, {out, in}, role);
    if (bias)
      visit(present(l.bias), part + ".bias", {out}, role == Role::kQuery ? Role::kQueryBias : Role::kBias);
  };

  visit(w.embed, "embed", {m.vocab, m.width}, Role::kEmbed);
  w.layers.resize(m.layers.size());
  for (const LayerSpec& s : m.layers) {
    LayerWeights<W>& l = w.layers[size_t(++layer)];
    const AttentionSpec& a = s.attn;
    visit(l.pre_attn, "pre_attn", {m.width}, Role::kGain);
    linear(l.q, "q", a.q_width(), m.width, a.qkv_bias, Role::kQuery);
    linear(l.k, "k", a.kv_width(), m.width, a.qkv_bias);
    linear(l.v, "v", a.kv_width(), m.width, a.qkv_bias);
    if (a.qk_norm) {
      visit(present(l.q_gain), "q_gain", {a.head_dim}, Role::kQueryGain);
      visit(present(l.k_gain), "k_gain", {a.head_dim}, Role::kGain);
    }
    linear(l.o, "o", m.width, a.q_width(), a.out_bias);
    if (s.post_attn) visit(present(l.post_attn), "post_attn", {m.width}, Role::kGain);
    visit(l.pre_mlp, "pre_mlp", {m.width}, Role::kGain);
    linear(l.gate, "gate", s.mlp.hidden, m.width, s.mlp.bias);
    linear(l.up, "up", s.mlp.hidden, m.width, s.mlp.bias);
    linear(l.down, "down", m.width, s.mlp.hidden, s.mlp.bias);
    if (s.post_mlp) visit(present(l.post_mlp), "post_mlp", {m.width}, Role::kGain);
  }
  layer = -1;
  visit(w.final_norm, "final_norm", {m.width}, Role::kGain);
  if (!m.tied_head) visit(present(w.head), "head", {m.vocab, m.width}, Role::kHead);
}

// Weights of one kind made from weights of another: to = fn(const From&, const WeightInfo&).
template <class To, class From, class F>
Weights<To> MapWeights(const ModelSpec& m, Weights<From>& from, F fn) {
  std::vector<const From*> sources;
  ForEachWeight(m, from, [&](From& w, const WeightInfo&) { sources.push_back(&w); });
  Weights<To> to;
  size_t next = 0;
  ForEachWeight(m, to, [&](To& w, const WeightInfo& info) { w = fn(*sources[next++], info); });
  return to;
}

}  // namespace pd
