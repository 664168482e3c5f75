#include "model/spec.h"

#include <cmath>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"

namespace pd {

const char* Name(Activation a) {
  switch (a) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kRelu2:
      return "relu2";
    case Activation::kSigmoid:
      return "sigmoid";
    case Activation::kTanh:
      return "tanh";
    case Activation::kIdentity:
      return "identity";
  }
  return "?";
}

LayerSpec PreNormLayer(const NormSpec& norm, MixerSpec mixer, MlpSpec mlp) {
  LayerSpec layer;
  layer.pre_mixer = norm;
  layer.mixer = std::move(mixer);
  layer.ffn = {{.pre = norm, .body = std::move(mlp), .post = {}}};
  return layer;
}

const AttentionSpec* FindAttention(const LayerSpec& layer) {
  return std::get_if<AttentionSpec>(&layer.mixer);
}
const AttentionSpec& AttentionOf(const LayerSpec& layer) { return std::get<AttentionSpec>(layer.mixer); }
AttentionSpec& AttentionOf(LayerSpec& layer) { return std::get<AttentionSpec>(layer.mixer); }
const MlpSpec& MlpOf(const LayerSpec& layer) { return std::get<MlpSpec>(layer.ffn.at(0).body); }
MlpSpec& MlpOf(LayerSpec& layer) { return std::get<MlpSpec>(layer.ffn.at(0).body); }

LayerRange AllLayers(const ModelSpec& spec) { return {0, int(spec.layers.size())}; }

int LastMemory(const ModelSpec& spec) {
  for (int i = int(spec.layers.size()) - 1; i >= 0; --i) {
    const MixerSpec& mixer = spec.layers[size_t(i)].mixer;
    const auto* attention = std::get_if<AttentionSpec>(&mixer);
    if (attention ? !attention->kv_from : !std::holds_alternative<std::monostate>(mixer)) return i;
  }
  return -1;
}

// ---- as JSON ----

namespace {

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

const char* Name(Values values) {
  switch (values) {
    case Values::kOwn:
      return "own";
    case Values::kKeyProjection:
      return "key_projection";
    case Values::kCachedKey:
      return "cached_key";
  }
  return "?";
}

template <class T>
Json Maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
template <class T>
Json MaybeSpec(const std::optional<T>& value);
template <class T>
Json List(const std::vector<T>& specs);

Json ToJson(const NormSpec& s) {
  return {{"eps", s.eps}, {"mean", s.mean}, {"gain", s.gain}, {"bias", s.bias}};
}

Json ToJson(const GateSpec& s) {
  return {{"act", Name(s.act)},
          {"sigmoid_gain", s.sigmoid_gain},
          {"up_offset", s.up_offset},
          {"limit", Maybe(s.limit)},
          {"cutoff", Maybe(s.cutoff)}};
}

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
  return {{"theta", s.theta}, {"dims", s.dims}, {"scaling", ToJson(s.scaling)}, {"pairs", s.pairs}};
}

Json ToJson(const WindowSpec& s) { return {{"size", s.size}, {"chunked", s.chunked}}; }

Json ToJson(const QkNorm& s) {
  return {{"norm", ToJson(s.norm)}, {"full_width", s.full_width}, {"after_rope", s.after_rope}};
}

Json ToJson(const QueryScale& s) { return {{"beta", s.beta}, {"period", s.period}, {"offset", s.offset}}; }

Json ToJson(const LatentSpec& s) {
  return {{"q_rank", s.q_rank},
          {"kv_rank", s.kv_rank},
          {"nope_dim", s.nope_dim},
          {"rope_dim", s.rope_dim},
          {"norm", ToJson(s.norm)}};
}

Json ToJson(const ConvSpec& s) {
  return {{"channels", s.channels}, {"taps", s.taps}, {"bias", s.bias}, {"act", Name(s.act)}};
}

Json ToJson(const std::monostate&) { return {{"kind", "none"}}; }

Json ToJson(const AttentionSpec& s) {
  return {{"kind", "attention"},
          {"heads", s.heads},
          {"kv_heads", s.kv_heads},
          {"head_dim", s.head_dim},
          {"v_dim", s.v_dim},
          {"scale", s.scale},
          {"values", Name(s.values)},
          {"window", MaybeSpec(s.window)},
          {"soft_cap", Maybe(s.soft_cap)},
          {"qk_norm", MaybeSpec(s.qk_norm)},
          {"v_norm", MaybeSpec(s.v_norm)},
          {"rope", MaybeSpec(s.rope)},
          {"query_scale", MaybeSpec(s.query_scale)},
          {"kv_from", Maybe(s.kv_from)},
          {"latent", MaybeSpec(s.latent)},
          {"gate", MaybeSpec(s.gate)},
          {"sinks", s.sinks},
          {"q_bias", s.q_bias},
          {"kv_bias", s.kv_bias},
          {"out_bias", s.out_bias}};
}

Json ToJson(const DeltaNetSpec& s) {
  return {{"kind", "delta_net"},    {"key_heads", s.key_heads}, {"value_heads", s.value_heads},
          {"key_dim", s.key_dim},   {"value_dim", s.value_dim}, {"tiled", s.tiled},
          {"conv", ToJson(s.conv)}, {"norm", ToJson(s.norm)}};
}

Json ToJson(const MambaSpec& s) {
  return {{"kind", "mamba"},        {"heads", s.heads},      {"head_dim", s.head_dim}, {"groups", s.groups},
          {"state", s.state},       {"dt_min", s.dt_min},    {"dt_max", s.dt_max},     {"bias", s.bias},
          {"conv", ToJson(s.conv)}, {"norm", ToJson(s.norm)}};
}

Json ToJson(const ShortConvSpec& s) {
  return {{"kind", "short_conv"}, {"conv", ToJson(s.conv)}, {"bias", s.bias}};
}

Json ToJson(const MlpSpec& s) {
  return {{"hidden", s.hidden}, {"gate", ToJson(s.gate)}, {"gated", s.gated}, {"bias", s.bias}};
}

Json ToJson(const RouterSpec& s) {
  return {{"score", s.score == RouterSpec::Score::kSoftmax ? "softmax" : "sigmoid"},
          {"groups", s.groups},
          {"active_groups", s.active_groups},
          {"bias", s.bias},
          {"select_bias", s.select_bias},
          {"normalise", s.normalise},
          {"weigh_input", s.weigh_input},
          {"expert_scale", s.expert_scale},
          {"eps", s.eps},
          {"scale", s.scale},
          {"logit_scale", s.logit_scale},
          {"norm", MaybeSpec(s.norm)}};
}

Json ToJson(const MoeSpec& s) {
  return {{"experts", s.experts},        {"active", s.active},         {"latent", s.latent},
          {"expert", ToJson(s.expert)},  {"router", ToJson(s.router)}, {"shared", MaybeSpec(s.shared)},
          {"shared_gate", s.shared_gate}};
}

Json ToJson(const Branch& s) {
  Json body = std::visit([](const auto& b) { return ToJson(b); }, s.body);
  return {{"pre", MaybeSpec(s.pre)}, {"body", std::move(body)}, {"post", MaybeSpec(s.post)}};
}

Json ToJson(const PerLayerSpec& s) { return {{"act", Name(s.act)}, {"post", ToJson(s.post)}}; }

Json ToJson(const PerLayerInputs& s) {
  return {{"vocab", s.vocab}, {"dim", s.dim}, {"norm", ToJson(s.norm)}};
}

Json ToJson(const LayerSpec& s) {
  return {{"pre_mixer", MaybeSpec(s.pre_mixer)},
          {"mixer", std::visit([](const auto& m) { return ToJson(m); }, s.mixer)},
          {"post_mixer", MaybeSpec(s.post_mixer)},
          {"ffn", List(s.ffn)},
          {"post_ffn", MaybeSpec(s.post_ffn)},
          {"parallel", s.parallel},
          {"scalar", s.scalar},
          {"residual_scale", s.residual_scale},
          {"per_layer", MaybeSpec(s.per_layer)}};
}

Json ToJson(const MtpSpec& s) {
  return {{"embed_norm", ToJson(s.embed_norm)},
          {"hidden_norm", ToJson(s.hidden_norm)},
          {"layer", ToJson(s.layer)},
          {"final_norm", ToJson(s.final_norm)}};
}

Json ToJson(const AdapterSpec& s) {
  return {{"name", s.name}, {"rank", s.rank}, {"scale", s.scale}, {"matrices", s.matrices}};
}

template <class T>
Json MaybeSpec(const std::optional<T>& value) {
  return value ? ToJson(*value) : Json(nullptr);
}
template <class T>
Json List(const std::vector<T>& specs) {
  Json list = Json::array();
  for (const T& spec : specs) list.push_back(ToJson(spec));
  return list;
}

}  // namespace

Json ToJson(const ModelSpec& spec) {
  return {{"width", spec.width},
          {"vocab", spec.vocab},
          {"max_context", spec.max_context},
          {"layers", List(spec.layers)},
          {"final_norm", ToJson(spec.final_norm)},
          {"embed_scale", spec.embed_scale},
          {"logit_cap", Maybe(spec.logit_cap)},
          {"logit_scale", spec.logit_scale},
          {"tied_head", spec.tied_head},
          {"per_layer", MaybeSpec(spec.per_layer)},
          {"mtp", List(spec.mtp)},
          {"adapters", List(spec.adapters)}};
}

uint64_t SpecDigest(const ModelSpec& spec) { return Digest(ToJson(spec).dump()); }

// ---- checks ----

namespace {

constexpr int kMostWidth = 1 << 24;

class Checks {
 public:
  explicit Checks(const std::string& where) : where_(where) {}

  void Model(const ModelSpec& m) const {
    Size(m.width, "the width");
    Require(m.vocab > 0 && m.vocab <= 1 << 28, "the vocabulary must be from 1 to 2^28");
    Require(m.max_context > 0, "the context length must be positive");
    Require(!m.layers.empty() && m.layers.size() <= 4096, "the number of layers must be from 1 to 4096");
    Require(!m.logit_cap || Positive(*m.logit_cap), "the logit cap must be positive");
    Require(Positive(m.embed_scale), "the embedding scale must be positive");
    Require(Positive(m.logit_scale), "the logit scale must be positive");
    Norm(m.final_norm);
    if (m.per_layer) {
      Size(m.per_layer->dim, "the width of a layer's own embeddings");
      Require(m.per_layer->vocab > 0 && m.per_layer->vocab <= 1 << 28,
              "the vocabulary of the layers' own embeddings must be from 1 to 2^28");
      Norm(m.per_layer->norm);
    }
    for (size_t i = 0; i < m.layers.size(); ++i) Layer(m, m.layers[i], int(i));
    for (const MtpSpec& mtp : m.mtp) {
      for (const NormSpec& norm : {mtp.embed_norm, mtp.hidden_norm, mtp.final_norm}) Norm(norm);
      Layer(m, mtp.layer, 0);
    }
    for (const AdapterSpec& a : m.adapters) {
      Size(a.rank, "an adapter's rank");
      Require(std::isfinite(a.scale), "an adapter's scale must be finite");
    }
  }

 private:
  void Require(bool ok, const char* what) const {
    if (!ok) throw Fail(ErrorKind::kCorruptFile, "{}: {}", where_, what);
  }
  static bool Positive(double value) { return value > 0 && std::isfinite(value); }
  void Size(int value, const char* what) const {
    if (value < 1 || value > kMostWidth)
      throw Fail(ErrorKind::kCorruptFile, "{}: {} must be from 1 to 2^24", where_, what);
  }
  void Norm(const NormSpec& s) const { Require(Positive(s.eps), "the epsilon of a norm must be positive"); }
  void Norm(const std::optional<NormSpec>& s) const {
    if (s) Norm(*s);
  }

  void Layer(const ModelSpec& m, const LayerSpec& s, int index) const {
    Norm(s.pre_mixer), Norm(s.post_mixer), Norm(s.post_ffn);
    Require(Positive(s.residual_scale), "the residual scale must be positive");
    Require(!s.per_layer || m.per_layer, "a layer reads embeddings of its own that the model does not have");
    if (s.per_layer) Norm(s.per_layer->post);
    if (const auto* a = std::get_if<AttentionSpec>(&s.mixer)) {
      Attention(*a);
      Require(!a->kv_from || (*a->kv_from >= 0 && *a->kv_from < index && OwnsKv(m, *a->kv_from)),
              "a layer reads keys and values of a layer that has none before it");
    }
    if (const auto* d = std::get_if<DeltaNetSpec>(&s.mixer)) DeltaNet(*d);
    if (const auto* b = std::get_if<MambaSpec>(&s.mixer)) Mamba(*b);
    if (const auto* c = std::get_if<ShortConvSpec>(&s.mixer)) Conv(c->conv);
    for (const Branch& branch : s.ffn) {
      Norm(branch.pre), Norm(branch.post);
      Require(!s.parallel || !branch.pre,
              "a parallel branch reads what the mixer reads: it has no norm before");
      if (const auto* mlp = std::get_if<MlpSpec>(&branch.body)) Mlp(*mlp);
      if (const auto* moe = std::get_if<MoeSpec>(&branch.body)) Moe(*moe);
    }
  }

  static bool OwnsKv(const ModelSpec& m, int layer) {
    const AttentionSpec* a = FindAttention(m.layers[size_t(layer)]);
    return a && !a->kv_from;
  }

  void Attention(const AttentionSpec& a) const {
    Require(a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0,
            "the number of heads and the head size must be positive");
    Require(a.heads % a.kv_heads == 0, "the number of heads must be a multiple of the number of KV heads");
    Require(a.v_dim >= 0, "the size of a value head must not be negative");
    Require(int64_t(a.heads) * std::max(a.head_dim, a.value_dim()) <= kMostWidth,
            "attention is wider than 2^24");
    Require(Positive(a.scale), "the attention scale must be positive");
    Require(!a.window || a.window->size > 0, "the attention window must be positive");
    Require(!a.soft_cap || Positive(*a.soft_cap), "the attention soft cap must be positive");
    if (a.qk_norm) Norm(a.qk_norm->norm);
    Norm(a.v_norm);
    Require(!a.query_scale || a.query_scale->period > 0, "the period of the query scale must be positive");
    if (a.latent) {
      Size(a.latent->kv_rank, "the rank of keys and values");
      Require(a.latent->q_rank >= 0 && a.latent->nope_dim >= 0 && a.latent->rope_dim >= 0,
              "sizes of latent attention must not be negative");
      Norm(a.latent->norm);
    }
    if (a.rope) Rope(*a.rope, a.latent ? a.latent->rope_dim : a.head_dim);
  }

  void Rope(const RopeSpec& r, int head_dim) const {
    const RopeScaling& k = r.scaling;
    using Kind = RopeScaling::Kind;
    Require(r.theta > 1 && std::isfinite(r.theta), "the RoPE base must be above 1");
    Require(r.dims > 0 && r.dims % 2 == 0 && r.dims <= head_dim,
            "the rotated dimensions must be even and at most the head size");
    Require(r.pairs >= 0 && r.pairs <= r.dims / 2, "more RoPE pairs turn than there are");
    Require(Positive(k.factor) && Positive(k.attention_factor), "RoPE scaling factors must be positive");
    const bool has_original = k.kind == Kind::kDynamic || k.kind == Kind::kYarn || k.kind == Kind::kLlama3 ||
                              k.kind == Kind::kLongrope;
    Require(!has_original || k.original_context > 0, "RoPE scaling needs the original context length");
    Require(k.kind != Kind::kYarn || (Positive(k.beta_fast) && Positive(k.beta_slow)),
            "YaRN's beta_fast and beta_slow must be positive");
    Require(k.kind != Kind::kDynamic || r.dims > 2,
            "dynamic RoPE scaling needs more than two rotated dimensions");
    Require(k.kind != Kind::kLlama3 || k.high_freq > k.low_freq,
            "llama3 RoPE scaling needs high_freq_factor above low_freq_factor");
    const size_t half = size_t(r.dims) / 2;
    const bool has_factors = k.kind == Kind::kFactors || k.kind == Kind::kLongrope;
    Require(!has_factors || k.factors.size() == half,
            "RoPE factors must have one entry for each rotated pair");
    Require(k.kind != Kind::kLongrope || k.long_factors.size() == half,
            "long RoPE factors must have one entry for each rotated pair");
    for (const auto* list : {&k.factors, &k.long_factors})
      for (double f : *list) Require(Positive(f), "RoPE factors must be positive");
  }

  void Conv(const ConvSpec& c) const {
    Size(c.channels, "the channels of a convolution");
    Require(c.taps >= 1 && c.taps <= 64, "the taps of a convolution must be from 1 to 64");
  }

  void DeltaNet(const DeltaNetSpec& d) const {
    Require(d.key_heads > 0 && d.value_heads > 0 && d.value_heads % d.key_heads == 0,
            "value heads of a delta net must be a multiple of its key heads");
    Size(d.key_dim, "the key size of a delta net");
    Size(d.value_dim, "the value size of a delta net");
    Conv(d.conv), Norm(d.norm);
    Require(d.conv.channels == 2 * d.key_width() + d.value_width(),
            "the convolution of a delta net must cover its queries, keys and values");
  }

  void Mamba(const MambaSpec& s) const {
    Require(s.heads > 0 && s.groups > 0 && s.heads % s.groups == 0,
            "heads of a Mamba layer must be a multiple of its groups");
    Size(s.head_dim, "the head size of a Mamba layer");
    Size(s.state, "the state size of a Mamba layer");
    Conv(s.conv), Norm(s.norm);
    Require(s.conv.channels == s.inner() + 2 * s.groups * s.state,
            "the convolution of a Mamba layer must cover x, B and C");
  }

  void Mlp(const MlpSpec& s) const {
    Require(s.hidden > 0 && s.hidden <= kMostWidth, "the MLP's hidden size must be from 1 to 2^24");
    Require(Positive(s.gate.sigmoid_gain), "the gain of a gate's sigmoid must be positive");
    Require(!s.gate.limit || Positive(*s.gate.limit), "the limit of a gate must be positive");
  }

  void Moe(const MoeSpec& s) const {
    Require(s.experts > 0 && s.experts <= 1 << 16, "the number of experts must be from 1 to 2^16");
    Require(s.active > 0 && s.active <= s.experts, "more experts are active than there are");
    Require(s.router.groups > 0 && s.experts % s.router.groups == 0 && s.router.active_groups > 0 &&
                s.router.active_groups <= s.router.groups,
            "groups of experts must divide them");
    Require(s.latent >= 0 && s.latent <= kMostWidth, "the latent width of experts must be from 0 to 2^24");
    Require(Positive(s.router.scale) && Positive(s.router.logit_scale) && s.router.eps >= 0,
            "the router's scales must be positive");
    Norm(s.router.norm);
    Mlp(s.expert);
    if (s.shared) Mlp(*s.shared);
  }

  const std::string& where_;
};

}  // namespace

void CheckSpec(const ModelSpec& spec, const std::string& where) { Checks(where).Model(spec); }

}  // namespace pd
