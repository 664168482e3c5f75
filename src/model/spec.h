// What a transformer is, as data. A family (families/*.cc) fills a ModelSpec from config.json; Forward and
// every backend branch on these fields only, never on a family's name.
//
// A layer is a token mixer (attention, or one with a state) and feed-forward branches, each with optional
// norms around it. What a backend cannot compute it refuses by name when a model is loaded (model/support.h).
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json_fwd.h"

namespace pd {

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kRelu2, kSigmoid, kTanh, kIdentity };
const char* Name(Activation activation);  // "silu", "gelu_tanh", ...

// x / sqrt(mean(x^2) + eps), or with `mean` (LayerNorm) the same of x - mean(x); then * gain + bias.
struct NormSpec {
  float eps = 1e-5f;
  bool mean = false;
  bool gain = true, bias = false;
  bool operator==(const NormSpec&) const = default;
};

// act(min(x, limit)) * (clamp(up, -limit, limit) + up_offset). `cutoff` first turns x into
// max(0, x - mean(x) - cutoff * std(x)) over the row (Gemma 3n).
struct GateSpec {
  Activation act = Activation::kSilu;
  float sigmoid_gain = 1;  // of kSilu: x * sigmoid(sigmoid_gain * x)
  float up_offset = 0;
  std::optional<float> limit = {}, cutoff = {};
  bool operator==(const GateSpec&) const = default;
};

// ---- positions ----

// How the rotation frequencies are bent for contexts longer than the model was trained on: model/rope.h has
// the formulas. Fields that a kind does not use keep their defaults.
struct RopeScaling {
  enum class Kind : uint8_t { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongrope, kFactors };
  Kind kind = Kind::kNone;
  double factor = 1;
  int original_context = 0;              // dynamic, yarn, llama3, longrope
  double low_freq = 1, high_freq = 4;    // llama3: in rotations over the original context
  double beta_fast = 32, beta_slow = 1;  // yarn: likewise
  bool truncate = true;                  // yarn: correction range rounded to whole dimensions
  double attention_factor = 1;           // yarn, longrope: multiplies cos and sin
  std::vector<double> factors,
      long_factors;  // kFactors: factors; longrope: short (factors) and long. [dims/2]
  bool operator==(const RopeScaling&) const = default;
};

// Rotary positions in the half-split form: dimension i turns with i + dims/2. Loaders permute interleaved
// weights.
struct RopeSpec {
  double theta = 10000;
  int dims = 0;  // the first dims of head_dim turn, the rest passes; even
  RopeScaling scaling = {};
  int pairs = 0;  // of the dims/2 pairs only the first `pairs` turn (Gemma 4); 0: all
  bool operator==(const RopeSpec&) const = default;
};

// Longrope and dynamic NTK depend on how long a sequence gets. The choice is made once, when a request is
// admitted, and is part of what makes two KV caches interchangeable: see FixRope in model/rope.h.
struct RopeVariant {
  int length = 0;  // 0: the original context suffices (and always for the kinds that do not depend on length)
  auto operator<=>(const RopeVariant&) const = default;
};

// ---- token mixers ----

// A row at position p sees keys at p - size + 1 .. p; with `chunked` (Llama 4) at floor(p / size) * size ..
// p.
struct WindowSpec {
  int size = 0;
  bool chunked = false;
  bool operator==(const WindowSpec&) const = default;
};

struct QkNorm {
  NormSpec norm;
  bool full_width = false;  // over the whole row of q or k; else each head alone, with one gain [D]
  bool after_rope = false;
  bool operator==(const QkNorm&) const = default;
};

// Queries grow with their position: q *= 1 + beta * ln(1 + floor((p + offset) / period)) (Llama 4,
// Ministral).
struct QueryScale {
  double beta = 0;
  int period = 1, offset = 0;
  bool operator==(const QueryScale&) const = default;
};

// Where a layer's values come from.
enum class Values : uint8_t {
  kOwn,            // a projection of their own
  kKeyProjection,  // the projection of the keys, before their norm and rotation (Gemma 4)
  kCachedKey,      // the first v_dim dimensions of the cached key (MLA)
};

// Keys and values from a low-rank latent (MLA, DeepSeek).
struct LatentSpec {
  int q_rank = 0;  // 0: queries are projected directly
  int kv_rank = 0, nope_dim = 0, rope_dim = 0;
  NormSpec norm;  // of both latents
  bool operator==(const LatentSpec&) const = default;
};

struct AttentionSpec {
  int heads = 0, kv_heads = 0, head_dim = 0;  // heads is a multiple of kv_heads (GQA)
  int v_dim = 0;                              // of a value head; 0: head_dim
  float scale = 1;                            // multiplies q.k, usually 1/sqrt(head_dim)
  Values values = Values::kOwn;
  std::optional<WindowSpec> window;
  std::optional<float> soft_cap;   // scores become cap * tanh(score / cap)
  std::optional<QkNorm> qk_norm;   // of q and k
  std::optional<NormSpec> v_norm;  // of each value head, without gain (Gemma 4)
  std::optional<RopeSpec> rope;    // absent: no positions in this layer
  std::optional<QueryScale> query_scale;
  std::optional<int> kv_from;  // reads the memory of that earlier layer and has none of its own
  std::optional<LatentSpec> latent;
  std::optional<GateSpec> gate;  // of the attended values by a projection of the input (Qwen 3.5)
  bool sinks = false;            // one more logit a head in the softmax, whose weight is dropped (gpt-oss)
  bool q_bias = false, kv_bias = false, out_bias = false;
  int value_dim() const { return v_dim > 0 ? v_dim : head_dim; }
  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }    // of keys
  int v_width() const { return kv_heads * value_dim(); }  // of values
  int out_width() const { return heads * value_dim(); }   // of what attention gives
  bool operator==(const AttentionSpec&) const = default;
};

// A causal depthwise convolution over tokens. The memory is its last taps - 1 inputs, f32 [taps - 1,
// channels].
struct ConvSpec {
  int channels = 0, taps = 0;
  bool bias = false;
  Activation act = Activation::kSilu;
  bool operator==(const ConvSpec&) const = default;
};

// Gated delta net (Qwen 3.5, Qwen3-Next). The memory is f32 [value_heads, key_dim, value_dim], and the tail
// of the convolution, whose channels are q | k | v.
struct DeltaNetSpec {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  bool tiled = false;  // value head h reads key head h % key_heads (GGUF), else h / (value_heads / key_heads)
  ConvSpec conv = {};
  NormSpec norm = {};  // of each value head of the result, before its gate
  int key_width() const { return key_heads * key_dim; }
  int value_width() const { return value_heads * value_dim; }
  bool operator==(const DeltaNetSpec&) const = default;
};

// Mamba-2 (Nemotron-H, Granite hybrid). The memory is f32 [heads, head_dim, state], and the tail of the
// convolution, whose channels are x | B | C.
struct MambaSpec {
  int heads = 0, head_dim = 0, groups = 0, state = 0;
  float dt_min = 0, dt_max = 0;  // limits of the time step after softplus; dt_max 0: none
  bool bias = false;             // of the projections in and out
  ConvSpec conv = {};
  NormSpec norm = {};  // of each group of the gated result
  int inner() const { return heads * head_dim; }
  bool operator==(const MambaSpec&) const = default;
};

// out(C * conv(B * x)) of three projections B, C, x (LFM2). The memory is the tail of the convolution.
struct ShortConvSpec {
  ConvSpec conv = {};
  bool bias = false;  // of the projections
  bool operator==(const ShortConvSpec&) const = default;
};

// monostate: the layer has no mixer (Nemotron-H's MLP blocks).
using MixerSpec = std::variant<std::monostate, AttentionSpec, DeltaNetSpec, MambaSpec, ShortConvSpec>;

// ---- feed-forward ----

struct MlpSpec {  // down(act(gate x) * up x); not gated: down(act(up x))
  int hidden = 0;
  GateSpec gate = {};
  bool gated = true, bias = false;
  bool operator==(const MlpSpec&) const = default;
};

// Which experts a row goes to, and with what weights. Ties go to the lower index; results are summed in
// ascending index.
struct RouterSpec {
  enum class Score : uint8_t { kSoftmax, kSigmoid } score = Score::kSoftmax;
  int groups = 1, active_groups = 1;  // experts come from the best active_groups of the groups (DeepSeek)
  bool bias = false;                  // of the projection
  bool select_bias = false;           // added to the scores when experts are chosen, not to their weights
  bool normalise = false;             // weights of the chosen experts sum to one
  bool weigh_input = false;           // the weight multiplies the expert's input (Llama 4)
  bool expert_scale = false;          // each expert's weight times a learnt scale (Gemma 4)
  float eps = 0;                      // added to the sum that normalises
  float scale = 1;                    // of the weights, last
  float logit_scale = 1;
  std::optional<NormSpec> norm;  // the router reads the normed stream, not the branch's input (Gemma 4)
  bool operator==(const RouterSpec&) const = default;
};

struct MoeSpec {
  int experts = 0, active = 0;
  int latent = 0;  // experts read and give this width, projected before and after (Nemotron); 0: the stream's
  MlpSpec expert;
  RouterSpec router;
  std::optional<MlpSpec> shared;  // computed for every row
  bool shared_gate = false;       // and weighed by the sigmoid of a projection to one channel
  bool operator==(const MoeSpec&) const = default;
};

using FeedSpec = std::variant<MlpSpec, MoeSpec>;

struct Branch {
  std::optional<NormSpec> pre = {};  // absent: it reads what the branch before it read, else the stream
  FeedSpec body;
  std::optional<NormSpec> post = {};
  bool operator==(const Branch&) const = default;
};

// ---- layers and model ----

// Gemma 4's embedding of its own for each layer: x += norm(out(act(in x) * embedding)).
struct PerLayerSpec {
  Activation act = Activation::kGeluTanh;
  NormSpec post;
  bool operator==(const PerLayerSpec&) const = default;
};

// Where those embeddings come from: (table[id] * sqrt(dim) + norm(projection(x) / sqrt(width))) / sqrt(2), in
// parts of `dim`, one for each layer.
struct PerLayerInputs {
  int vocab = 0, dim = 0;
  NormSpec norm;
  bool operator==(const PerLayerInputs&) const = default;
};

struct LayerSpec {
  std::optional<NormSpec> pre_mixer;
  MixerSpec mixer;
  std::optional<NormSpec> post_mixer;  // on the mixer's output, before it joins the residual stream
  std::vector<Branch> ffn;             // summed; none: the layer is its mixer
  std::optional<NormSpec> post_ffn;    // on the sum of several branches
  bool parallel = false;               // branches read what the mixer reads (Cohere); they have no `pre`
  bool scalar = false;                 // the layer's output is multiplied by a learnt number
  float residual_scale = 1;            // of what joins the stream (Granite)
  std::optional<PerLayerSpec> per_layer;
  bool operator==(const LayerSpec&) const = default;
};

// The usual layer: x += mixer(norm x); x += mlp(norm x).
LayerSpec PreNormLayer(const NormSpec& norm, MixerSpec mixer, MlpSpec mlp);

// A layer that predicts the token after the next from a hidden state and an embedding (multi-token
// prediction): layer(embed_in(norm(embedding)) + hidden_in(norm(hidden))).
struct MtpSpec {
  NormSpec embed_norm, hidden_norm;
  LayerSpec layer;
  NormSpec final_norm;
  bool operator==(const MtpSpec&) const = default;
};

// Low-rank changes to some matrices of every layer (LoRA): y += scale * up(down x).
struct AdapterSpec {
  std::string name;
  int rank = 0;
  float scale = 1;                    // alpha / rank
  std::vector<std::string> matrices;  // as PartName says them: "q", "v", "down"
  bool operator==(const AdapterSpec&) const = default;
};

struct ModelSpec {
  int width = 0, vocab = 0, max_context = 0;  // max_context: tokens
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
  float embed_scale = 1;
  std::optional<float> logit_cap;  // logits become cap * tanh(logit / cap)
  float logit_scale = 1;           // before the cap
  bool tied_head = false;          // the head is the embedding table
  std::optional<PerLayerInputs> per_layer;
  std::vector<MtpSpec> mtp;
  std::vector<AdapterSpec> adapters;
  bool operator==(const ModelSpec&) const = default;
};

// A layer's attention, or nullptr. AttentionOf and MlpOf are for code that has refused all else: a layer
// whose mixer is attention, and one whose only branch is a dense MLP.
const AttentionSpec* FindAttention(const LayerSpec& layer);
const AttentionSpec& AttentionOf(const LayerSpec& layer);
AttentionSpec& AttentionOf(LayerSpec& layer);
const MlpSpec& MlpOf(const LayerSpec& layer);
MlpSpec& MlpOf(LayerSpec& layer);

// Layers [first, last).
struct LayerRange {
  int first = 0, last = 0;
  bool operator==(const LayerRange&) const = default;
};
LayerRange AllLayers(const ModelSpec& spec);
// The last layer with memory of its own: a pass that wants no logits ends there. -1: none has any.
int LastMemory(const ModelSpec& spec);

// Every field, in declaration order: what `inspect` prints and SpecDigest covers.
Json ToJson(const ModelSpec& spec);
uint64_t SpecDigest(const ModelSpec& spec);

// Throws kCorruptFile (naming `where` and the field) unless every number is positive, heads divide, rope.dims
// is even and at most head_dim, factors have dims/2 entries, and sizes stay below 2^31 elements per row.
void CheckSpec(const ModelSpec& spec, const std::string& where);

}  // namespace pd
