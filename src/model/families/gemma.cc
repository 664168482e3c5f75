// Gemma 3: local and global layers with a RoPE base each, norms on both sides, embeddings scaled by
// sqrt(width). Of the models that also see images ("gemma3"), the language model.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/families/config.h"
#include "model/families/families.h"

namespace pd {
namespace {

struct GemmaRope {
  RopeSpec global, local;
};

// Either one object per layer type, or the keys of old, where scaling is for global layers only.
GemmaRope ReadRopes(JsonReader& config, const Sizes& sizes) {
  constexpr double kGlobal = 1e6, kLocal = 1e4;
  if (!config.Has("rope_parameters")) {
    config.Ignore({"rope_parameters"});
    const Json* scaling = config.Has("rope_scaling") ? &config.Value("rope_scaling") : nullptr;
    config.Ignore({"rope_scaling"});
    const double global = PositiveNumber(config, "rope_theta", kGlobal);
    const double local = PositiveNumber(config, "rope_local_base_freq", kLocal);
    return {ReadRopeObject(scaling, config.where() + ": rope_scaling", sizes, global, std::nullopt),
            ReadRopeObject(nullptr, config.where(), sizes, local, std::nullopt)};
  }
  config.Expect("rope_scaling", nullptr);
  config.Expect("rope_theta", nullptr);
  config.Expect("rope_local_base_freq", nullptr);
  JsonReader parameters = config.Object("rope_parameters");
  const auto read = [&](const char* key, double theta) {
    const Json* object = parameters.Has(key) ? &parameters.Value(key) : nullptr;
    parameters.Ignore({key});
    return ReadRopeObject(object, parameters.where() + ": " + key, sizes, theta, std::nullopt);
  };
  GemmaRope ropes{read("full_attention", kGlobal), read("sliding_attention", kLocal)};
  parameters.Done();
  return ropes;
}

ModelSpec ReadTextConfig(JsonReader& config) {
  config.Expect("model_type", "gemma3_text");
  ReadBookkeeping(config);
  const Sizes sizes = ReadSizes(config, {.vocab = 262208,
                                         .width = 2304,
                                         .hidden = 9216,
                                         .layers = 26,
                                         .heads = 8,
                                         .kv_heads = 4,
                                         .head_dim = 256,
                                         .max_positions = 131072});
  const NormSpec norm{.eps = sizes.eps};
  const GemmaRope ropes = ReadRopes(config, sizes);
  config.Expect("use_bidirectional_attention", false);

  AttentionSpec attention;
  attention.heads = sizes.heads;
  attention.kv_heads = sizes.kv_heads;
  attention.head_dim = sizes.head_dim;
  attention.scale = float(1 / std::sqrt(PositiveNumber(config, "query_pre_attn_scalar", 256)));
  attention.soft_cap = OptionalPositive(config, "attn_logit_softcapping");
  attention.qk_norm = QkNorm{norm};
  attention.rope = ropes.global;
  SetBiases(attention, config.BoolOr("attention_bias", false));
  const MlpSpec mlp{.hidden = sizes.hidden,
                    .gate = {.act = ReadActivation(config, "hidden_activation", "gelu_pytorch_tanh")}};
  LayerSpec global = PreNormLayer(norm, attention, mlp);
  global.post_mixer = global.ffn[0].post = norm;

  // Every pattern-th layer is global. The key with the underscore is how a newer version keeps the older one.
  const int64_t kept = config.IntOr("_sliding_window_pattern", 6, 1);
  const int64_t pattern = config.IntOr("sliding_window_pattern", kept, 1);
  const std::vector<bool> locals =
      ReadLocalLayers(config, sizes.layers, [&](int i) { return (i + 1) % pattern != 0; });

  LayerSpec local = global;
  AttentionOf(local).rope = ropes.local;
  if (std::find(locals.begin(), locals.end(), true) != locals.end())
    AttentionOf(local).window = WindowSpec{int(config.Int("sliding_window", 1))};
  config.Ignore({"sliding_window"});

  ModelSpec spec;
  spec.width = sizes.width;
  spec.vocab = sizes.vocab;
  spec.max_context = sizes.max_positions;  // scaling is counted in
  for (const bool is_local : locals) spec.layers.push_back(is_local ? local : global);
  spec.final_norm = norm;
  spec.embed_scale = std::sqrt(float(sizes.width));
  spec.logit_cap = OptionalPositive(config, "final_logit_softcapping");
  spec.tied_head = config.BoolOr("tie_word_embeddings", true);
  return spec;
}

ModelSpec ReadConfig(JsonReader& config) {
  if (config.String("model_type") == "gemma3_text") return ReadTextConfig(config);
  ReadBookkeeping(config);
  config.Ignore({"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index",
                 "image_token_index", "boi_token_id", "eoi_token_id", "image_token_id"});
  config.Expect("tie_word_embeddings", true);
  JsonReader text = config.Object("text_config");
  ModelSpec spec = ReadTextConfig(text);
  text.Done();
  return spec;
}

std::string TensorName(const WeightInfo& info) { return HuggingFaceName(info, NormStyle::kSandwich); }

}  // namespace

Family GemmaFamily() {
  return {.name = "gemma",
          .model_types = {"gemma3_text", "gemma3"},
          .read_config = ReadConfig,
          .tensor_name = TensorName,
          .gain_minus_one = [](const WeightInfo&) { return true; },
          .renamed_prefixes = {{"language_model.model.", "model."},
                               {"model.language_model.", "model."},
                               {"language_model.lm_head.", "lm_head."}},
          .ignored_tensors = {"vision_tower.*", "model.vision_tower.*", "multi_modal_projector.*",
                              "model.multi_modal_projector.*"}};
}

}  // namespace pd
