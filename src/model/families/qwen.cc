// Qwen 2 and 2.5 (biases on queries, keys and values) and Qwen 3 (queries and keys normed per head).
#include <cmath>

#include "base/error.h"
#include "model/families/config.h"
#include "model/families/families.h"

namespace pd {
namespace {

// The window of local layers. It counts only where use_sliding_window says so, and then from layer
// max_window_layers on, unless layer_types says which.
void ReadWindows(JsonReader& config, ModelSpec& spec) {
  const bool use = config.BoolOr("use_sliding_window", false);
  const int first_local = int(config.IntOr("max_window_layers", 28));
  std::optional<int> window;
  if (use && config.Has("sliding_window")) window = int(config.Int("sliding_window", 1));
  config.Ignore({"sliding_window"});
  const std::vector<bool> local =
      ReadLocalLayers(config, int(spec.layers.size()), [&](int i) { return window && i >= first_local; });
  for (size_t i = 0; i < local.size(); ++i) {
    if (!local[i]) continue;
    if (!window)
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: \"layer_types\" makes layer {} local, but there is no \"sliding_window\" or "
                 "\"use_sliding_window\" is false",
                 config.where(), i);
    spec.layers[i].attn.window = window;
  }
}

ModelSpec ReadConfig(JsonReader& config) {
  const bool qwen3 = config.String("model_type") == "qwen3";
  ReadBookkeeping(config);
  const Sizes sizes = ReadSizes(config, {.head_dim = qwen3 ? std::optional<int64_t>(128) : std::nullopt});

  LayerSpec layer;
  layer.pre_attn = layer.pre_mlp = {.eps = sizes.eps};
  layer.attn.heads = sizes.heads;
  layer.attn.kv_heads = sizes.kv_heads;
  layer.attn.head_dim = sizes.head_dim;
  layer.attn.scale = 1 / std::sqrt(float(sizes.head_dim));
  layer.attn.rope = ReadRope(config, sizes);
  config.Expect("use_mrope", false);  // positions in three dimensions, for images
  layer.attn.qkv_bias = !qwen3;
  if (qwen3) {
    layer.attn.qk_norm = {.eps = sizes.eps};
    layer.attn.qkv_bias = layer.attn.out_bias = config.BoolOr("attention_bias", false);
  }
  layer.mlp = {.hidden = sizes.hidden, .activation = ReadActivation(config, "hidden_act", "silu")};

  ModelSpec spec;
  spec.width = sizes.width;
  spec.vocab = sizes.vocab;
  spec.max_context = MaxContext(*layer.attn.rope, sizes.max_positions);
  spec.layers.assign(size_t(sizes.layers), layer);
  ReadWindows(config, spec);
  spec.final_norm = {.eps = sizes.eps};
  spec.tied_head = config.BoolOr("tie_word_embeddings", false);
  return spec;
}

std::string TensorName(const WeightInfo& info) { return HuggingFaceName(info, NormStyle::kPre); }

}  // namespace

Family QwenFamily() {
  return {.name = "qwen",
          .model_types = {"qwen2", "qwen3"},
          .read_config = ReadConfig,
          .tensor_name = TensorName,
          .ignored_tensors = {
              "model.layers.*.self_attn.rotary_emb.inv_freq"}};  // computed, saved by old versions
}

}  // namespace pd
