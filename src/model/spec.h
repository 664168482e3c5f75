// What a transformer is, as data. A family (families/*.cc) fills a ModelSpec from config.json; Forward and
// every backend branch on these fields only, never on a family's name.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace pd {

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh };

// x / sqrt(mean(x^2) + eps) * gain, or * (1 + gain) with plus_one (Gemma).
struct NormSpec {
  float eps = 1e-5f;
  bool plus_one = false;
  bool operator==(const NormSpec&) const = default;
};

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
  RopeScaling scaling;
  bool operator==(const RopeSpec&) const = default;
};

// Longrope and dynamic NTK depend on how long a sequence gets. The choice is made once, when a request is
// admitted, and is part of what makes two KV caches interchangeable: see FixRope in model/rope.h.
struct RopeVariant {
  int length = 0;  // 0: the original context suffices (and always for the kinds that do not depend on length)
  bool operator==(const RopeVariant&) const = default;
};

struct AttentionSpec {
  int heads = 0, kv_heads = 0, head_dim = 0;  // heads is a multiple of kv_heads (GQA)
  float scale = 1;                            // multiplies q.k, usually 1/sqrt(head_dim)
  std::optional<int> window;                  // a row at position p sees keys at p - window + 1 .. p
  std::optional<float> soft_cap;              // scores become cap * tanh(score / cap)
  std::optional<NormSpec> qk_norm;            // each head of q and k normed alone, before the rotation
  std::optional<RopeSpec> rope;               // absent: no positions in this layer
  bool qkv_bias = false, out_bias = false;
  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  bool operator==(const AttentionSpec&) const = default;
};

struct MlpSpec {  // down(act(gate(x)) * up(x))
  int hidden = 0;
  Activation activation = Activation::kSilu;
  bool bias = false;
  bool operator==(const MlpSpec&) const = default;
};

struct LayerSpec {
  NormSpec pre_attn;
  AttentionSpec attn;
  std::optional<NormSpec> post_attn;  // on the attention's output, before it joins the residual stream
  NormSpec pre_mlp;
  MlpSpec mlp;
  std::optional<NormSpec> post_mlp;
  bool operator==(const LayerSpec&) const = default;
};

struct ModelSpec {
  int width = 0, vocab = 0, max_context = 0;  // max_context: tokens
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
  float embed_scale = 1;
  std::optional<float> logit_cap;  // logits become cap * tanh(logit / cap)
  bool tied_head = false;          // the head is the embedding table
  bool operator==(const ModelSpec&) const = default;
};

// Every field, in declaration order: what `inspect` prints and SpecDigest covers.
Json ToJson(const ModelSpec& spec);
uint64_t SpecDigest(const ModelSpec& spec);

// Throws kCorruptFile (naming `where` and the field) unless every number is positive, heads divide, rope.dims
// is even and at most head_dim, factors have dims/2 entries, and sizes stay below 2^31 elements per row.
void CheckSpec(const ModelSpec& spec, const std::string& where);

}  // namespace pd
