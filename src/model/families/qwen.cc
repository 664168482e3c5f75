// Qwen 2 and 2.5 (biases on queries, keys and values) and Qwen 3 (queries and keys normed per head).
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
    AttentionOf(spec.layers[i]).window = WindowSpec{*window};
  }
}

ModelSpec ReadConfig(JsonReader& config) {
  const bool qwen3 = config.String("model_type") == "qwen3";
  ReadBookkeeping(config);
  const Sizes sizes = ReadSizes(config, {.head_dim = qwen3 ? std::optional<int64_t>(128) : std::nullopt});

  AttentionSpec attention = ReadAttention(config, sizes);
  config.Expect("use_mrope", false);  // positions in three dimensions, for images
  if (qwen3) {
    attention.qk_norm = QkNorm{{.eps = sizes.eps}};
    SetBiases(attention, config.BoolOr("attention_bias", false));
  } else {
    attention.q_bias = attention.kv_bias = true;
  }
  const MlpSpec mlp = ReadMlp(config, sizes);
  ModelSpec spec = DecoderSpec(config, sizes, PreNormLayer({.eps = sizes.eps}, attention, mlp));
  ReadWindows(config, spec);
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
