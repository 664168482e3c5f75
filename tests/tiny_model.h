// Small random models for tests of mathematics: every field that a family sets, in one place.
#pragma once
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/tensor.h"

namespace pd::test {

// Weights of any spec from a fixed generator, as f32 tensors with the right shapes.
struct TinyModel {
  ModelSpec spec;
  Weights<TensorView> tensors;
};

inline TinyModel RandomModel(const ModelSpec& spec, unsigned seed = 1) {
  TinyModel model{spec, {}};
  std::mt19937 generator(seed);
  MakeRoom(spec, model.tensors);
  ForEachWeight(spec, model.tensors, [&](TensorView& t, const WeightInfo& info) {
    int64_t count = 1;
    for (int64_t d : info.shape) count *= d;
    auto values = std::make_shared<std::vector<float>>(size_t(count));
    const bool gain = info.role == Role::kGain;
    // Where norms stand on both sides of a block gains are around two, as Gemma's.
    const bool both_sides = info.layer >= 0 && spec.layers[size_t(info.layer)].pre_mixer &&
                            spec.layers[size_t(info.layer)].post_mixer;
    // Lively: activations keep their size through a layer, attention is far from uniform, gains differ from
    // one.
    const float deviation = gain                     ? 0.2f
                            : info.shape.size() == 2 ? 1.5f / std::sqrt(float(info.shape[1]))
                                                     : 0.3f;
    std::normal_distribution<float> normal(gain ? 1.f : 0.f, deviation);
    for (float& v : *values) v = normal(generator) + (gain && both_sides ? 1.f : 0.f);
    t = {info.Name(), DType::kF32, info.shape, std::as_bytes(std::span(*values)), values, 0};
  });
  return model;
}

// Layers of every kind that the spec can express, side by side.
inline ModelSpec MixedSpec(bool tied = true) {
  const auto layer = [](int heads, int kv_heads, int head_dim, double theta, int dims) {
    AttentionSpec a;
    a.heads = heads, a.kv_heads = kv_heads, a.head_dim = head_dim;
    a.scale = 1 / std::sqrt(float(head_dim));
    if (dims > 0) a.rope = RopeSpec{theta, dims};
    return PreNormLayer({}, a, {.hidden = 48});
  };
  ModelSpec m;
  m.width = 32, m.vocab = 96, m.max_context = 4096, m.tied_head = tied;
  m.embed_scale = 1.5f, m.logit_cap = 20.f;
  LayerSpec llama = layer(4, 2, 8, 10000, 8);
  AttentionOf(llama).q_bias = AttentionOf(llama).kv_bias = AttentionOf(llama).out_bias = true;
  MlpOf(llama).bias = true;
  LayerSpec qwen = layer(4, 1, 16, 1000000, 16);
  AttentionOf(qwen).qk_norm = QkNorm{{1e-6f}};
  LayerSpec local = layer(2, 2, 8, 10000, 8);
  local.pre_mixer = local.ffn[0].pre = NormSpec{1e-6f};
  local.post_mixer = local.ffn[0].post = NormSpec{1e-6f};
  AttentionOf(local).qk_norm = QkNorm{{1e-6f}};
  AttentionOf(local).window = WindowSpec{20};
  MlpOf(local).gate.act = Activation::kGeluTanh;
  LayerSpec global = local;
  AttentionOf(global).window.reset();
  AttentionOf(global).soft_cap = 30.f;
  AttentionOf(global).rope->theta = 500000;
  AttentionOf(global).rope->scaling.kind = RopeScaling::Kind::kLinear;
  AttentionOf(global).rope->scaling.factor = 8;
  LayerSpec partial = layer(4, 4, 8, 10000, 4);
  MlpOf(partial).gate.act = Activation::kGelu;
  m.layers = {llama, qwen, local, global, partial, layer(4, 2, 8, 0, 0), qwen};
  return m;
}

// What the mixed model lacks, each in a layer: LayerNorm with biases around an ungated MLP, norms after the
// blocks alone with queries and keys normed over their whole width, a parallel MLP with a scaled residual,
// and keys normed after their rotation, of which only some pairs turn.
inline ModelSpec OtherKindsSpec() {
  AttentionSpec a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = 8;
  a.scale = 1 / std::sqrt(8.f);
  a.rope = RopeSpec{10000, 8};
  ModelSpec m;
  m.width = 32, m.vocab = 96, m.max_context = 4096;
  const NormSpec rms{1e-6f}, layer_norm{.eps = 1e-5f, .mean = true, .bias = true};
  LayerSpec biased = PreNormLayer(
      layer_norm, a, {.hidden = 48, .gate = {.act = Activation::kGelu}, .gated = false, .bias = true});
  LayerSpec after = PreNormLayer(rms, a, {.hidden = 40});
  after.pre_mixer.reset(), after.ffn[0].pre.reset();
  after.post_mixer = after.ffn[0].post = rms;
  AttentionOf(after).qk_norm = QkNorm{.norm = rms, .full_width = true};
  LayerSpec parallel = PreNormLayer({.eps = 1e-5f, .mean = true}, a, {.hidden = 48});
  parallel.parallel = true, parallel.ffn[0].pre.reset(), parallel.residual_scale = 0.5f;
  LayerSpec turned = PreNormLayer(rms, a, {.hidden = 24});
  AttentionOf(turned).qk_norm = QkNorm{.norm = rms, .after_rope = true};
  AttentionOf(turned).rope->pairs = 3;
  m.layers = {biased, after, parallel, turned, biased};
  m.final_norm = layer_norm;
  m.logit_scale = 0.25f;
  return m;
}

}  // namespace pd::test
