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
  ForEachWeight(spec, model.tensors, [&](TensorView& t, const WeightInfo& info) {
    int64_t count = 1;
    for (int64_t d : info.shape) count *= d;
    auto values = std::make_shared<std::vector<float>>(size_t(count));
    const bool gain = info.role == Role::kGain || info.role == Role::kQueryGain;
    // Lively: activations keep their size through a layer, attention is far from uniform, gains differ from
    // one.
    const float deviation = gain                     ? 0.2f
                            : info.shape.size() == 2 ? 1.5f / std::sqrt(float(info.shape[1]))
                                                     : 0.3f;
    std::normal_distribution<float> normal(gain ? 1.f : 0.f, deviation);
    for (float& v : *values) v = normal(generator);
    t = {info.name, DType::kF32, info.shape, std::as_bytes(std::span(*values)), values, 0};
  });
  return model;
}

// Layers of every kind that the spec can express, side by side.
inline ModelSpec MixedSpec(bool tied = true) {
  const auto layer = [](int heads, int kv_heads, int head_dim, double theta, int dims) {
    LayerSpec s;
    s.attn.heads = heads, s.attn.kv_heads = kv_heads, s.attn.head_dim = head_dim;
    s.attn.scale = 1 / std::sqrt(float(head_dim));
    if (dims > 0) s.attn.rope = RopeSpec{theta, dims, {}};
    s.mlp.hidden = 48;
    return s;
  };
  ModelSpec m;
  m.width = 32, m.vocab = 96, m.max_context = 4096, m.tied_head = tied;
  m.embed_scale = 1.5f, m.logit_cap = 20.f;
  LayerSpec llama = layer(4, 2, 8, 10000, 8);
  llama.attn.qkv_bias = llama.attn.out_bias = llama.mlp.bias = true;
  LayerSpec qwen = layer(4, 1, 16, 1000000, 16);
  qwen.attn.qk_norm = NormSpec{1e-6f, false};
  LayerSpec local = layer(2, 2, 8, 10000, 8);
  local.pre_attn = local.pre_mlp = NormSpec{1e-6f, true};
  local.post_attn = local.post_mlp = NormSpec{1e-6f, true};
  local.attn.qk_norm = NormSpec{1e-6f, true};
  local.attn.window = 20;
  local.mlp.activation = Activation::kGeluTanh;
  LayerSpec global = local;
  global.attn.window.reset();
  global.attn.soft_cap = 30.f;
  global.attn.rope->theta = 500000;
  global.attn.rope->scaling.kind = RopeScaling::Kind::kLinear;
  global.attn.rope->scaling.factor = 8;
  LayerSpec partial = layer(4, 4, 8, 10000, 4);
  partial.mlp.activation = Activation::kGelu;
  m.layers = {llama, qwen, local, global, partial, layer(4, 2, 8, 0, 0), qwen};
  return m;
}

}  // namespace pd::test
