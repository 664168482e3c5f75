// Llama 1 to 3.2 and what shares its class: TinyLlama, SmolLM2, and Mistral, which adds a window.
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

  AttentionSpec attention = ReadAttention(config, sizes);
  MlpSpec mlp = ReadMlp(config, sizes);
  if (mistral) {
    if (const auto window = ReadWindow(config)) attention.window = WindowSpec{*window};
  } else {
    SetBiases(attention, config.BoolOr("attention_bias", false));
    mlp.bias = config.BoolOr("mlp_bias", false);
    config.Expect("sliding_window", nullptr);  // transformers' Llama has no window and reads no such key
  }
  return DecoderSpec(config, sizes, PreNormLayer({.eps = sizes.eps}, attention, mlp));
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
