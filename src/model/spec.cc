#include "model/spec.h"

#include <cmath>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"

namespace pd {
namespace {

const char* Name(Activation a) {
  switch (a) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
  }
  return "?";
}

const char* Name(RopeScaling::Kind kind) {
  switch (kind) {
    case RopeScaling::Kind::kNone:
      return "none";
    case RopeScaling::Kind::kLinear:
      return "linear";
    case RopeScaling::Kind::kDynamic:
      return "dynamic";
    case RopeScaling::Kind::kYarn:
      return "yarn";
    case RopeScaling::Kind::kLlama3:
      return "llama3";
    case RopeScaling::Kind::kLongrope:
      return "longrope";
    case RopeScaling::Kind::kFactors:
      return "factors";
  }
  return "?";
}

Json ToJson(const NormSpec& s) { return {{"eps", s.eps}, {"plus_one", s.plus_one}}; }

Json ToJson(const RopeScaling& s) {
  return {{"kind", Name(s.kind)},
          {"factor", s.factor},
          {"original_context", s.original_context},
          {"low_freq", s.low_freq},
          {"high_freq", s.high_freq},
          {"beta_fast", s.beta_fast},
          {"beta_slow", s.beta_slow},
          {"truncate", s.truncate},
          {"attention_factor", s.attention_factor},
          {"factors", s.factors},
          {"long_factors", s.long_factors}};
}

Json ToJson(const RopeSpec& s) {
  return {{"theta", s.theta}, {"dims", s.dims}, {"scaling", ToJson(s.scaling)}};
}

template <class T>
Json Maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
template <class T>
Json MaybeSpec(const std::optional<T>& value) {
  return value ? ToJson(*value) : Json(nullptr);
}

Json ToJson(const AttentionSpec& s) {
  return {{"heads", s.heads},
          {"kv_heads", s.kv_heads},
          {"head_dim", s.head_dim},
          {"scale", s.scale},
          {"window", Maybe(s.window)},
          {"soft_cap", Maybe(s.soft_cap)},
          {"qk_norm", MaybeSpec(s.qk_norm)},
          {"rope", MaybeSpec(s.rope)},
          {"qkv_bias", s.qkv_bias},
          {"out_bias", s.out_bias}};
}

Json ToJson(const MlpSpec& s) {
  return {{"hidden", s.hidden}, {"activation", Name(s.activation)}, {"bias", s.bias}};
}

Json ToJson(const LayerSpec& s) {
  return {{"pre_attn", ToJson(s.pre_attn)}, {"attn", ToJson(s.attn)}, {"post_attn", MaybeSpec(s.post_attn)},
          {"pre_mlp", ToJson(s.pre_mlp)},   {"mlp", ToJson(s.mlp)},   {"post_mlp", MaybeSpec(s.post_mlp)}};
}

void CheckLayer(const LayerSpec& s, const std::string& where) {
  const auto require = [&](bool ok, const char* what) {
    if (!ok) throw Fail(ErrorKind::kCorruptFile, "{}: {}", where, what);
  };
  const auto positive = [](double value) { return value > 0 && std::isfinite(value); };
  for (const NormSpec* norm : {&s.pre_attn, &s.pre_mlp})
    require(positive(norm->eps), "the epsilon of a norm must be positive");
  for (const auto* norm : {&s.post_attn, &s.post_mlp, &s.attn.qk_norm})
    require(!*norm || positive((*norm)->eps), "the epsilon of a norm must be positive");
  const AttentionSpec& a = s.attn;
  require(a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0,
          "the number of heads and the head size must be positive");
  require(a.heads % a.kv_heads == 0, "the number of heads must be a multiple of the number of KV heads");
  require(int64_t(a.heads) * a.head_dim <= 1 << 24, "attention is wider than 2^24");
  require(positive(a.scale), "the attention scale must be positive");
  require(!a.window || *a.window > 0, "the attention window must be positive");
  require(!a.soft_cap || positive(*a.soft_cap), "the attention soft cap must be positive");
  require(s.mlp.hidden > 0 && s.mlp.hidden <= 1 << 24, "the MLP's hidden size must be from 1 to 2^24");
  if (!a.rope) return;
  const RopeSpec& r = *a.rope;
  const RopeScaling& k = r.scaling;
  using Kind = RopeScaling::Kind;
  require(r.theta > 1 && std::isfinite(r.theta), "the RoPE base must be above 1");
  require(r.dims > 0 && r.dims % 2 == 0 && r.dims <= a.head_dim,
          "the rotated dimensions must be even and at most the head size");
  require(positive(k.factor) && positive(k.attention_factor), "RoPE scaling factors must be positive");
  const bool has_original = k.kind == Kind::kDynamic || k.kind == Kind::kYarn || k.kind == Kind::kLlama3 ||
                            k.kind == Kind::kLongrope;
  require(!has_original || k.original_context > 0, "RoPE scaling needs the original context length");
  require(k.kind != Kind::kYarn || (positive(k.beta_fast) && positive(k.beta_slow)),
          "YaRN's beta_fast and beta_slow must be positive");
  require(k.kind != Kind::kDynamic || r.dims > 2,
          "dynamic RoPE scaling needs more than two rotated dimensions");
  require(k.kind != Kind::kLlama3 || k.high_freq > k.low_freq,
          "llama3 RoPE scaling needs high_freq_factor above low_freq_factor");
  const size_t half = size_t(r.dims) / 2;
  const bool has_factors = k.kind == Kind::kFactors || k.kind == Kind::kLongrope;
  require(!has_factors || k.factors.size() == half, "RoPE factors must have one entry for each rotated pair");
  require(k.kind != Kind::kLongrope || k.long_factors.size() == half,
          "long RoPE factors must have one entry for each rotated pair");
  for (const auto* list : {&k.factors, &k.long_factors})
    for (double f : *list) require(positive(f), "RoPE factors must be positive");
}

}  // namespace

Json ToJson(const ModelSpec& spec) {
  Json layers = Json::array();
  for (const LayerSpec& layer : spec.layers) layers.push_back(ToJson(layer));
  return {{"width", spec.width},
          {"vocab", spec.vocab},
          {"max_context", spec.max_context},
          {"layers", std::move(layers)},
          {"final_norm", ToJson(spec.final_norm)},
          {"embed_scale", spec.embed_scale},
          {"logit_cap", Maybe(spec.logit_cap)},
          {"tied_head", spec.tied_head}};
}

uint64_t SpecDigest(const ModelSpec& spec) { return Digest(ToJson(spec).dump()); }

void CheckSpec(const ModelSpec& spec, const std::string& where) {
  const auto require = [&](bool ok, const char* what) {
    if (!ok) throw Fail(ErrorKind::kCorruptFile, "{}: {}", where, what);
  };
  require(spec.width > 0 && spec.width <= 1 << 24, "the width must be from 1 to 2^24");
  require(spec.vocab > 0 && spec.vocab <= 1 << 28, "the vocabulary must be from 1 to 2^28");
  require(spec.max_context > 0, "the context length must be positive");
  require(!spec.layers.empty() && spec.layers.size() <= 4096, "the number of layers must be from 1 to 4096");
  require(!spec.logit_cap || (*spec.logit_cap > 0 && std::isfinite(*spec.logit_cap)),
          "the logit cap must be positive");
  require(spec.embed_scale > 0 && std::isfinite(spec.embed_scale), "the embedding scale must be positive");
  require(spec.final_norm.eps > 0 && std::isfinite(spec.final_norm.eps),
          "the epsilon of a norm must be positive");
  for (const LayerSpec& layer : spec.layers) CheckLayer(layer, where);
}

}  // namespace pd
