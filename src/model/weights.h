// The list of a model's tensors: the only one in the program. Loaders, backends, exporters and counters all
// walk it.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "model/spec.h"

namespace pd {

using Shape = std::vector<int64_t>;

// Which tensor of the model or of a layer this is.
enum class Part : uint8_t {
  // the model, and PerLayerInputs
  kEmbed,
  kFinalNorm,
  kHead,
  kPerLayerEmbed,
  kPerLayerModel,
  kPerLayerNorm,
  // norms of a layer
  kPreMixer,
  kPostMixer,
  kPostFfn,
  // attention
  kQ,
  kK,
  kV,
  kO,
  kQNorm,
  kKNorm,
  kSinks,
  kAttnGate,
  // latent attention
  kQDown,
  kQDownNorm,
  kKvDown,
  kKvDownNorm,
  kKvUp,
  // mixers with a state
  kQkv,
  kZ,
  kBeta,
  kDecay,
  kConv,
  kDecayBias,
  kDecayRate,
  kMixerNorm,
  kOut,
  kSkip,  // Mamba's D
  kGateB,
  kGateC,
  kIn,
  // a feed-forward branch
  kPreBranch,
  kPostBranch,
  kGate,
  kUp,
  kDown,
  // experts
  kRouter,
  kSelectBias,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertScale,
  kRouterScale,
  kLatentDown,
  kLatentUp,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedWeight,
  // the embedding of a layer's own, and its scalar
  kPerLayerIn,
  kPerLayerOut,
  kPerLayerPost,
  kScalar,
  // multi-token prediction
  kMtpEmbedNorm,
  kMtpHiddenNorm,
  kMtpEmbedIn,
  kMtpHiddenIn,
  kMtpFinalNorm,
};
const char* PartName(Part part);  // "embed", "q", "pre_attn"

// What of a Part: its matrix or gain, its bias, or the factors of an adapter.
enum class Piece : uint8_t { kWeight, kBias, kAdapterDown, kAdapterUp };

// What a tensor is for.
enum class Role : uint8_t {
  kTable,    // [vocab, width]: rows are looked up
  kHead,     // [vocab, width]
  kLinear,   // [out, in]
  kExperts,  // [experts, out, in]: a stack of matrices; biases of experts are [experts, out] and kBias
  kTaps,     // [channels, taps] of a convolution
  kGain,     // of a norm
  kBias,     // of a product or a norm
  kVector,   // other numbers
};

struct WeightInfo {
  Part part;
  Piece piece = Piece::kWeight;
  int layer = -1;   // -1: of the model; from the number of layers on: of ModelSpec::mtp
  int branch = 0;   // of LayerSpec::ffn
  int adapter = 0;  // of ModelSpec::adapters
  Shape shape;      // [out, in] for a matrix, [n] for a vector
  Role role;
  // Unique and stable: "embed", "layers.3.q", "layers.3.q.bias", "layers.3.gate.1" (of the second branch).
  std::string Name() const;
  bool Is(Part p) const { return part == p && piece == Piece::kWeight; }
  bool operator==(const WeightInfo&) const = default;
};

template <class W>
struct NormWeights {
  std::optional<W> gain, bias;  // [n], or [n / heads] for norms of heads
};

template <class W>
struct LinearWeights {
  W weight;               // [out, in]
  std::optional<W> bias;  // [out]
  // Of ModelSpec::adapters, in their order; those that leave this matrix alone have none.
  struct LowRank {
    W down, up;  // [rank, in], [out, rank]
  };
  std::vector<std::optional<LowRank>> adapters = {};
};

template <class W>
struct LatentWeights {
  std::optional<LinearWeights<W>> q_down;  // [q_rank, width]
  std::optional<NormWeights<W>> q_norm;    // [q_rank]
  LinearWeights<W> kv_down;                // [kv_rank + rope_dim, width]
  NormWeights<W> kv_norm;                  // [kv_rank]
  LinearWeights<W> kv_up;                  // [H*(nope_dim + v_dim), kv_rank]
};

template <class W>
struct AttentionWeights {
  LinearWeights<W> q;                    // [H*D, width]
  std::optional<LinearWeights<W>> k, v;  // [K*D, width], [K*v_dim, width]; absent where the spec says so
  NormWeights<W> q_norm, k_norm;         // [D], or the whole width
  std::optional<W> sinks;                // [H]
  std::optional<LinearWeights<W>> gate;  // [H*v_dim, width]
  std::optional<LatentWeights<W>> latent;
  LinearWeights<W> o;  // [width, H*v_dim]
};

template <class W>
struct ConvWeights {
  W taps;                 // [channels, taps], the oldest first
  std::optional<W> bias;  // [channels]
};

template <class W>
struct DeltaNetWeights {
  LinearWeights<W> qkv, z;       // [2*key width + value width, width], [value width, width]
  LinearWeights<W> beta, decay;  // [value_heads, width]
  ConvWeights<W> conv;
  W decay_bias, decay_rate;  // [value_heads]: dt_bias, and log A
  NormWeights<W> norm;       // [value_dim]
  LinearWeights<W> out;      // [width, value width]
};

template <class W>
struct MambaWeights {
  LinearWeights<W> z, xbc, decay;  // [inner, width], [inner + 2*groups*state, width], [heads, width]
  ConvWeights<W> conv;
  W decay_bias, decay_rate, skip;  // [heads]: dt_bias, log A, D
  NormWeights<W> norm;             // [inner]
  LinearWeights<W> out;            // [width, inner]
};

template <class W>
struct ShortConvWeights {
  LinearWeights<W> b, c, in;  // [channels, width] each
  ConvWeights<W> conv;
  LinearWeights<W> out;  // [width, channels]
};

template <class W>
struct MlpWeights {
  std::optional<LinearWeights<W>> gate;  // [hidden, width]
  LinearWeights<W> up, down;             // [hidden, width], [width, hidden]
};

template <class W>
struct MoeWeights {
  LinearWeights<W> router;                                   // [experts, width]
  std::optional<W> router_scale, select_bias, expert_scale;  // [width], [experts] twice
  std::optional<LinearWeights<W>> latent_down, latent_up;    // [latent, width], [width, latent]
  std::optional<LinearWeights<W>> gate;                      // [experts, hidden, in]
  LinearWeights<W> up, down;                                 // likewise, [experts, in, hidden]
  std::optional<MlpWeights<W>> shared;
  std::optional<LinearWeights<W>> shared_weight;  // [1, width]
};

template <class W>
struct BranchWeights {
  NormWeights<W> pre, post;
  std::variant<MlpWeights<W>, MoeWeights<W>> body;
};

template <class W>
struct PerLayerWeights {
  LinearWeights<W> in, out;  // [dim, width], [width, dim]
  NormWeights<W> post;       // [width]
};

template <class W>
struct LayerWeights {
  NormWeights<W> pre_mixer, post_mixer, post_ffn;  // [width]
  std::variant<std::monostate, AttentionWeights<W>, DeltaNetWeights<W>, MambaWeights<W>, ShortConvWeights<W>>
      mixer;
  std::vector<BranchWeights<W>> ffn;
  std::optional<PerLayerWeights<W>> per_layer;
  std::optional<W> scalar;  // [1]
};

template <class W>
struct MtpWeights {
  NormWeights<W> embed_norm, hidden_norm, final_norm;  // [width]
  LinearWeights<W> embed_in, hidden_in;                // [width, width]
  LayerWeights<W> layer;
};

template <class W>
struct Weights {
  W embed;  // [vocab, width]
  struct PerLayer {
    W embed;                 // [vocab, layers*dim]
    LinearWeights<W> model;  // [layers*dim, width]
    NormWeights<W> norm;     // [dim]
  };
  std::optional<PerLayer> per_layer;
  std::vector<LayerWeights<W>> layers;
  NormWeights<W> final_norm;  // [width]
  std::optional<W> head;      // [vocab, width]; absent when tied
  std::vector<MtpWeights<W>> mtp;
  const W& HeadOrEmbed() const { return head ? *head : embed; }
};

// As AttentionOf and MlpOf of the spec.
template <class W>
const AttentionWeights<W>& AttentionOf(const LayerWeights<W>& layer) {
  return std::get<AttentionWeights<W>>(layer.mixer);
}
template <class W>
AttentionWeights<W>& AttentionOf(LayerWeights<W>& layer) {
  return std::get<AttentionWeights<W>>(layer.mixer);
}
template <class W>
const MlpWeights<W>& MlpOf(const LayerWeights<W>& layer) {
  return std::get<MlpWeights<W>>(layer.ffn.at(0).body);
}
template <class W>
MlpWeights<W>& MlpOf(LayerWeights<W>& layer) {
  return std::get<MlpWeights<W>>(layer.ffn.at(0).body);
}

namespace detail {

// One walk serves two purposes. kMakeRoom: every optional, list and variant that the spec asks for is made
// where it is missing. Otherwise they are there, and the tree may be const.
template <bool kMakeRoom, class W>
class WeightWalk {
 public:
  using Fn = std::function<void(W&, const WeightInfo&)>;
  WeightWalk(const ModelSpec& m, const Fn& fn) : m_(m), fn_(fn) {}

  template <class Tree>
  void Model(Tree& w) {
    const int64_t width = m_.width;
    Visit(w.embed, Part::kEmbed, {m_.vocab, width}, Role::kTable);
    if (m_.per_layer) {
      auto& p = There(w.per_layer);
      const int64_t dim = m_.per_layer->dim, all = dim * int64_t(m_.layers.size());
      Visit(p.embed, Part::kPerLayerEmbed, {m_.per_layer->vocab, all}, Role::kTable);
      Linear(p.model, Part::kPerLayerModel, all, width, false);
      Norm(p.norm, Part::kPerLayerNorm, m_.per_layer->norm, dim);
    }
    Sized(w.layers, m_.layers.size());
    for (const LayerSpec& s : m_.layers) Layer(s, w.layers[size_t(++layer_)]);
    const int last = std::exchange(layer_, -1);
    Norm(w.final_norm, Part::kFinalNorm, m_.final_norm, width);
    if (!m_.tied_head) Visit(There(w.head), Part::kHead, {m_.vocab, width}, Role::kHead);
    layer_ = last;
    Sized(w.mtp, m_.mtp.size());
    for (size_t i = 0; i < m_.mtp.size(); ++i) Mtp(m_.mtp[i], w.mtp[i]);
  }

 private:
  using Plain = std::remove_const_t<W>;

  void Visit(W& weight, Part part, Shape shape, Role role, Piece piece = Piece::kWeight, int adapter = 0) {
    fn_(weight, WeightInfo{part, piece, layer_, branch_, adapter, std::move(shape), role});
  }

  // ---- room ----

  template <class O>
  static auto& There(O& optional) {
    if constexpr (kMakeRoom)
      if (!optional) optional.emplace();
    return *optional;
  }
  template <class V>
  static void Sized(V& list, size_t size) {
    if constexpr (kMakeRoom) list.resize(size);
  }
  template <class T, class V>
  static auto& Held(V& variant) {
    if constexpr (kMakeRoom)
      if (!std::holds_alternative<T>(variant)) variant.template emplace<T>();
    return std::get<T>(variant);
  }

  // ---- pieces ----

  template <class N>
  void Norm(N& norm, Part part, const NormSpec& s, int64_t n) {
    if (s.gain) Visit(There(norm.gain), part, {n}, Role::kGain);
    if (s.bias) Visit(There(norm.bias), part, {n}, Role::kBias, Piece::kBias);
  }
  template <class N>
  void Norm(N& norm, Part part, const std::optional<NormSpec>& s, int64_t n) {
    if (s) Norm(norm, part, *s, n);
  }
  template <class L>
  void Linear(L& l, Part part, int64_t out, int64_t in, bool bias) {
    Visit(l.weight, part, {out, in}, Role::kLinear);
    if (bias) Visit(There(l.bias), part, {out}, Role::kBias, Piece::kBias);
    if (layer_ < 0 || m_.adapters.empty()) return;
    Sized(l.adapters, m_.adapters.size());
    for (size_t i = 0; i < m_.adapters.size(); ++i) {
      const AdapterSpec& a = m_.adapters[i];
      if (std::ranges::find(a.matrices, PartName(part)) == a.matrices.end()) continue;
      auto& factors = There(l.adapters[i]);
      Visit(factors.down, part, {a.rank, in}, Role::kLinear, Piece::kAdapterDown, int(i));
      Visit(factors.up, part, {out, a.rank}, Role::kLinear, Piece::kAdapterUp, int(i));
    }
  }
  template <class L>
  void Experts(L& l, Part part, int64_t experts, int64_t out, int64_t in, bool bias) {
    Visit(l.weight, part, {experts, out, in}, Role::kExperts);
    if (bias) Visit(There(l.bias), part, {experts, out}, Role::kBias, Piece::kBias);
  }
  template <class C>
  void Conv(C& c, const ConvSpec& s) {
    Visit(c.taps, Part::kConv, {s.channels, s.taps}, Role::kTaps);
    if (s.bias) Visit(There(c.bias), Part::kConv, {s.channels}, Role::kBias, Piece::kBias);
  }

  // ---- mixers ----

  template <class L>
  void Mixer(const std::monostate&, L&) {}

  template <class L>
  void Mixer(const AttentionSpec& a, L& layer) {
    auto& w = Held<AttentionWeights<Plain>>(layer.mixer);
    const int64_t width = m_.width;
    if (a.latent) {
      Latent(a, *a.latent, w);
    } else {
      Linear(w.q, Part::kQ, a.q_width(), width, a.q_bias);
      if (!a.kv_from) {
        Linear(There(w.k), Part::kK, a.kv_width(), width, a.kv_bias);
        if (a.values == Values::kOwn) Linear(There(w.v), Part::kV, a.v_width(), width, a.kv_bias);
      }
      if (a.qk_norm) {
        const bool whole = a.qk_norm->full_width;
        Norm(w.q_norm, Part::kQNorm, a.qk_norm->norm, whole ? a.q_width() : a.head_dim);
        if (!a.kv_from) Norm(w.k_norm, Part::kKNorm, a.qk_norm->norm, whole ? a.kv_width() : a.head_dim);
      }
    }
    if (a.sinks) Visit(There(w.sinks), Part::kSinks, {a.heads}, Role::kVector);
    if (a.gate) Linear(There(w.gate), Part::kAttnGate, a.out_width(), width, false);
    Linear(w.o, Part::kO, width, a.out_width(), a.out_bias);
  }

  template <class A>
  void Latent(const AttentionSpec& a, const LatentSpec& s, A& w) {
    auto& l = There(w.latent);
    if (s.q_rank > 0) {
      Linear(There(l.q_down), Part::kQDown, s.q_rank, m_.width, a.q_bias);
      Norm(There(l.q_norm), Part::kQDownNorm, s.norm, s.q_rank);
    }
    Linear(w.q, Part::kQ, int64_t(a.heads) * (s.nope_dim + s.rope_dim), s.q_rank > 0 ? s.q_rank : m_.width,
           false);
    Linear(l.kv_down, Part::kKvDown, s.kv_rank + s.rope_dim, m_.width, a.kv_bias);
    Norm(l.kv_norm, Part::kKvDownNorm, s.norm, s.kv_rank);
    Linear(l.kv_up, Part::kKvUp, int64_t(a.heads) * (s.nope_dim + a.value_dim()), s.kv_rank, false);
  }

  template <class L>
  void Mixer(const DeltaNetSpec& d, L& layer) {
    auto& w = Held<DeltaNetWeights<Plain>>(layer.mixer);
    Linear(w.qkv, Part::kQkv, 2 * d.key_width() + d.value_width(), m_.width, false);
    Linear(w.z, Part::kZ, d.value_width(), m_.width, false);
    Linear(w.beta, Part::kBeta, d.value_heads, m_.width, false);
    Linear(w.decay, Part::kDecay, d.value_heads, m_.width, false);
    Conv(w.conv, d.conv);
    Visit(w.decay_bias, Part::kDecayBias, {d.value_heads}, Role::kVector);
    Visit(w.decay_rate, Part::kDecayRate, {d.value_heads}, Role::kVector);
    Norm(w.norm, Part::kMixerNorm, d.norm, d.value_dim);
    Linear(w.out, Part::kOut, m_.width, d.value_width(), false);
  }

  template <class L>
  void Mixer(const MambaSpec& s, L& layer) {
    auto& w = Held<MambaWeights<Plain>>(layer.mixer);
    const int64_t inner = s.inner();
    Linear(w.z, Part::kZ, inner, m_.width, s.bias);
    Linear(w.xbc, Part::kIn, inner + int64_t(2) * s.groups * s.state, m_.width, s.bias);
    Linear(w.decay, Part::kDecay, s.heads, m_.width, s.bias);
    Conv(w.conv, s.conv);
    Visit(w.decay_bias, Part::kDecayBias, {s.heads}, Role::kVector);
    Visit(w.decay_rate, Part::kDecayRate, {s.heads}, Role::kVector);
    Visit(w.skip, Part::kSkip, {s.heads}, Role::kVector);
    Norm(w.norm, Part::kMixerNorm, s.norm, inner);
    Linear(w.out, Part::kOut, m_.width, inner, s.bias);
  }

  template <class L>
  void Mixer(const ShortConvSpec& s, L& layer) {
    auto& w = Held<ShortConvWeights<Plain>>(layer.mixer);
    Linear(w.b, Part::kGateB, s.conv.channels, m_.width, s.bias);
    Linear(w.c, Part::kGateC, s.conv.channels, m_.width, s.bias);
    Linear(w.in, Part::kIn, s.conv.channels, m_.width, s.bias);
    Conv(w.conv, s.conv);
    Linear(w.out, Part::kOut, m_.width, s.conv.channels, s.bias);
  }

  // ---- feed-forward ----

  template <class M>
  void Mlp(M& w, const MlpSpec& s, int64_t width, const std::array<Part, 3>& parts) {
    if (s.gated) Linear(There(w.gate), parts[0], s.hidden, width, s.bias);
    Linear(w.up, parts[1], s.hidden, width, s.bias);
    Linear(w.down, parts[2], width, s.hidden, s.bias);
  }

  template <class B>
  void Feed(const MlpSpec& s, B& body) {
    Mlp(Held<MlpWeights<Plain>>(body), s, m_.width, {Part::kGate, Part::kUp, Part::kDown});
  }

  template <class B>
  void Feed(const MoeSpec& s, B& body) {
    auto& w = Held<MoeWeights<Plain>>(body);
    const int64_t width = m_.width, in = s.latent > 0 ? s.latent : width, hidden = s.expert.hidden;
    if (s.router.norm) Visit(There(w.router_scale), Part::kRouterScale, {width}, Role::kVector);
    Linear(w.router, Part::kRouter, s.experts, width, s.router.bias);
    if (s.router.select_bias) Visit(There(w.select_bias), Part::kSelectBias, {s.experts}, Role::kVector);
    if (s.router.expert_scale) Visit(There(w.expert_scale), Part::kExpertScale, {s.experts}, Role::kVector);
    if (s.latent > 0) {
      Linear(There(w.latent_down), Part::kLatentDown, in, width, false);
      Linear(There(w.latent_up), Part::kLatentUp, width, in, false);
    }
    if (s.expert.gated) Experts(There(w.gate), Part::kExpertGate, s.experts, hidden, in, s.expert.bias);
    Experts(w.up, Part::kExpertUp, s.experts, hidden, in, s.expert.bias);
    Experts(w.down, Part::kExpertDown, s.experts, in, hidden, s.expert.bias);
    if (!s.shared) return;
    Mlp(There(w.shared), *s.shared, width, {Part::kSharedGate, Part::kSharedUp, Part::kSharedDown});
    if (s.shared_gate) Linear(There(w.shared_weight), Part::kSharedWeight, 1, width, false);
  }

  // ---- layers ----

  template <class L>
  void Layer(const LayerSpec& s, L& w) {
    Norm(w.pre_mixer, Part::kPreMixer, s.pre_mixer, m_.width);
    std::visit([&](const auto& mixer) { Mixer(mixer, w); }, s.mixer);
    Norm(w.post_mixer, Part::kPostMixer, s.post_mixer, m_.width);
    Sized(w.ffn, s.ffn.size());
    for (branch_ = 0; branch_ < int(s.ffn.size()); ++branch_) {
      const Branch& f = s.ffn[size_t(branch_)];
      auto& b = w.ffn[size_t(branch_)];
      Norm(b.pre, Part::kPreBranch, f.pre, m_.width);
      std::visit([&](const auto& body) { Feed(body, b.body); }, f.body);
      Norm(b.post, Part::kPostBranch, f.post, m_.width);
    }
    branch_ = 0;
    Norm(w.post_ffn, Part::kPostFfn, s.post_ffn, m_.width);
    if (s.per_layer) {
      auto& p = There(w.per_layer);
      Linear(p.in, Part::kPerLayerIn, m_.per_layer->dim, m_.width, false);
      Linear(p.out, Part::kPerLayerOut, m_.width, m_.per_layer->dim, false);
      Norm(p.post, Part::kPerLayerPost, s.per_layer->post, m_.width);
    }
    if (s.scalar) Visit(There(w.scalar), Part::kScalar, {1}, Role::kVector);
  }

  template <class M>
  void Mtp(const MtpSpec& s, M& w) {
    ++layer_;
    Norm(w.embed_norm, Part::kMtpEmbedNorm, s.embed_norm, m_.width);
    Norm(w.hidden_norm, Part::kMtpHiddenNorm, s.hidden_norm, m_.width);
    Linear(w.embed_in, Part::kMtpEmbedIn, m_.width, m_.width, false);
    Linear(w.hidden_in, Part::kMtpHiddenIn, m_.width, m_.width, false);
    Layer(s.layer, w.layer);
    Norm(w.final_norm, Part::kMtpFinalNorm, s.final_norm, m_.width);
  }

  const ModelSpec& m_;
  const Fn& fn_;
  int layer_ = -1, branch_ = 0;
};

}  // namespace detail

// Makes whatever the spec asks for and `w` lacks; what is there stays.
template <class W>
void MakeRoom(const ModelSpec& m, Weights<W>& w) {
  const std::function<void(W&, const WeightInfo&)> nothing = [](W&, const WeightInfo&) {};
  detail::WeightWalk<true, W>(m, nothing).Model(w);
}

// Calls fn for every tensor that the spec has, in a fixed order. `w` has room for them (MakeRoom).
template <class W>
void ForEachWeight(const ModelSpec& m, Weights<W>& w,
                   const std::type_identity_t<std::function<void(W&, const WeightInfo&)>>& fn) {
  detail::WeightWalk<false, W>(m, fn).Model(w);
}
template <class W>
void ForEachWeight(const ModelSpec& m, const Weights<W>& w,
                   const std::type_identity_t<std::function<void(const W&, const WeightInfo&)>>& fn) {
  detail::WeightWalk<false, const W>(m, fn).Model(w);
}

// Every tensor's description, in the order of ForEachWeight.
std::vector<WeightInfo> ListWeights(const ModelSpec& m);

// Weights of one kind made from weights of another: to = fn(const From&, const WeightInfo&).
template <class To, class From, class F>
Weights<To> MapWeights(const ModelSpec& m, const Weights<From>& from, F fn) {
  std::vector<const From*> sources;
  ForEachWeight(m, from, [&](const From& w, const WeightInfo&) { sources.push_back(&w); });
  Weights<To> to;
  MakeRoom(m, to);
  size_t next = 0;
  ForEachWeight(m, to, [&](To& w, const WeightInfo& info) { w = fn(*sources[next++], info); });
  return to;
}

}  // namespace pd
