// Llama 1 to 3.2 and what shares its class: TinyLlama, SmolLM2, and Mistral, which adds a window.
#include <cmath>

#include "base/error.h"
#include "model/families/config.h"
#include "model/families/families.h"

namespace pd {
namespace {

// Mistral's window, which holds for every layer; null says that there is none.
std::optional<int> ReadWindow(JsonReader& config) {
  if (config.Has("sliding_window")) return int(config.Int("sliding_window", 1));
  if (!config.Names("sliding_window"))
    throw Fail(ErrorKind::kCorruptFile, "{}: key \"sliding_window\" is missing; null says that there is none",
               config.where());
  config.Ignore({"sliding_window"});
  return std::nullopt;
}

ModelSpec ReadConfig(JsonReader& config) {
  const bool mistral = config.String("model_type") == "mistral";
  ReadBookkeeping(config);
  const Sizes sizes = ReadSizes(config, {});

  LayerSpec layer;
  layer.pre_attn = layer.pre_mlp = {.eps = sizes.eps};
  layer.attn.heads = sizes.heads;
  layer.attn.kv_heads = sizes.kv_heads;
  layer.attn.head_dim = sizes.head_dim;
  layer.attn.scale = 1 / std::sqrt(float(sizes.head_dim));
  layer.attn.rope = ReadRope(config, sizes);
  if (!mistral) layer.attn.qkv_bias = layer.attn.out_bias = config.BoolOr("attention_bias", false);
  layer.mlp = {.hidden = sizes.hidden, .activation = ReadActivation(config, "hidden_act", "silu")};
  if (!mistral) layer.mlp.bias = config.BoolOr("mlp_bias", false);
  layer.attn.window = mistral ? ReadWindow(config) : std::nullopt;
  if (!mistral)
    config.Expect("sliding_window", nullptr);  // transformers' Llama has no window and reads no such key

  ModelSpec spec;
  spec.width = sizes.width;
  spec.vocab = sizes.vocab;
  spec.max_context = MaxContext(*layer.attn.rope, sizes.max_positions);
  spec.layers.assign(size_t(sizes.layers), layer);
  spec.final_norm = {.eps = sizes.eps};
  spec.tied_head = config.BoolOr("tie_word_embeddings", false);
  return spec;
}

std::string TensorName(const WeightInfo& info) { return HuggingFaceName(info, NormStyle::kPre); }

}  // namespace

Family LlamaFamily() {
  return {.name = "llama",
          .model_types = {"llama", "mistral"},
          .read_config = ReadConfig,
          .tensor_name = TensorName,
          .ignored_tensors = {
              "model.layers.*.self_attn.rotary_emb.inv_freq"}};  // computed, saved by old versions
}

}  // namespace pd
