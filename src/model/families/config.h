// What the families share when they read config.json: sizes, RoPE, layer types, and the names of tensors.
//
// Every key is read, or ignored here by name because it leaves the mathematics alone. One key is ours,
// written by formats/gguf_config.cc for what GGUF says and config.json cannot:
//   "rope_scaling": {"rope_type": "factors", "factors": []}  each rotated pair's divisor, given
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/spec.h"
#include "model/weights.h"

namespace pd {

// The numbers that every family has. Set: transformers' default for a key that config.json leaves out.
struct SizeDefaults {
  std::optional<int64_t> vocab = std::nullopt, width = std::nullopt, hidden = std::nullopt,
                         layers = std::nullopt, heads = std::nullopt, kv_heads = std::nullopt,
                         head_dim = std::nullopt, max_positions = std::nullopt;
};
struct Sizes {
  int vocab, width, hidden, layers, heads, kv_heads, head_dim, max_positions;
  float eps;
};
// Without a default: kv_heads is heads, head_dim is width / heads, any other missing key is kCorruptFile.
Sizes ReadSizes(JsonReader& config, const SizeDefaults& defaults);

// Keys that transformers writes for every model: token ids, training and generation settings. Throws
// kUnsupported for those that would change the result: quantised weights, code of the model's own.
void ReadBookkeeping(JsonReader& config);

// "silu", "gelu", "gelu_pytorch_tanh", "gelu_new".
Activation ReadActivation(JsonReader& config, std::string_view key, const std::string& fallback);

// A number above zero, at most `max`: kCorruptFile otherwise.
double PositiveNumber(JsonReader& config, std::string_view key, std::optional<double> fallback,
                      double max = 1e30);
std::optional<float> OptionalPositive(JsonReader& config, std::string_view key);

// RoPE of a model with one kind for all layers: rope_theta and rope_scaling, or rope_parameters, which holds
// both.
RopeSpec ReadRope(JsonReader& config, const Sizes& sizes);
// RoPE from one object as transformers writes it; null means plain. `theta` is used where the object has
// none. `original` is the config's own original_max_position_embeddings, which outranks the object's.
RopeSpec ReadRopeObject(const Json* object, const std::string& where, const Sizes& sizes, double theta,
                        std::optional<int64_t> original);
// The longest sequence: what the config says, and what scaling allows where the config gives the length
// before it.
int MaxContext(const RopeSpec& rope, int max_positions);

// For each layer whether it is local ("sliding_attention" in layer_types, or `local(i)` without that key).
std::vector<bool> ReadLocalLayers(JsonReader& config, int layers, const std::function<bool(int)>& local);

// What the Llama-like families share: grouped attention with one RoPE for all layers and no biases, a gated
// MLP, and a model of equal layers with RMSNorm ("tie_word_embeddings" is read here).
AttentionSpec ReadAttention(JsonReader& config, const Sizes& sizes);
void SetBiases(AttentionSpec& attention, bool biased);  // of all four projections
MlpSpec ReadMlp(JsonReader& config, const Sizes& sizes);
ModelSpec DecoderSpec(JsonReader& config, const Sizes& sizes, const LayerSpec& layer);

// Names as transformers writes them. Sandwich: norms on both sides of attention and MLP (Gemma).
enum class NormStyle { kPre, kSandwich };
std::string HuggingFaceName(const WeightInfo& info, NormStyle style);

}  // namespace pd
