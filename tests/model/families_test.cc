#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "model/registry.h"
#include "tests/expect_error.h"

namespace pd::test {
namespace {

ModelSpec Read(const Json& json) {
  const Family* family = FindFamily(json.at("model_type").get<std::string>());
  EXPECT_NE(family, nullptr);
  JsonReader config(json, "config.json");
  ModelSpec spec = family->read_config(config);
  config.Done();
  CheckSpec(spec, "config.json");
  return spec;
}
ModelSpec Read(const char* text) { return Read(ParseJson(text, "config.json")); }

// The configurations below are those that the models are published with.

bool HasBias(const AttentionSpec& a) { return a.q_bias || a.kv_bias || a.out_bias; }

TEST(PublishedConfigs, TinyLlama) {
  const ModelSpec spec =
      Read(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 5632, "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32,
      "num_hidden_layers": 22, "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.35.0", "use_cache": true, "vocab_size": 32000})");
  EXPECT_EQ(spec.width, 2048);
  EXPECT_EQ(spec.vocab, 32000);
  EXPECT_EQ(spec.max_context, 2048);
  EXPECT_EQ(spec.embed_scale, 1.f);
  EXPECT_FALSE(spec.tied_head);
  EXPECT_FALSE(spec.logit_cap);
  ASSERT_EQ(spec.layers.size(), 22u);
  EXPECT_EQ(spec.final_norm, NormSpec{1e-5f});
  const LayerSpec& layer = spec.layers.back();
  EXPECT_EQ(layer, spec.layers.front());
  EXPECT_EQ(layer.pre_mixer, spec.final_norm);
  ASSERT_EQ(layer.ffn.size(), 1u);
  EXPECT_EQ(layer.ffn[0].pre, spec.final_norm);
  EXPECT_FALSE(layer.post_mixer || layer.ffn[0].post || AttentionOf(layer).qk_norm ||
               AttentionOf(layer).window || AttentionOf(layer).soft_cap);
  EXPECT_EQ(AttentionOf(layer).heads, 32);
  EXPECT_EQ(AttentionOf(layer).kv_heads, 4);
  EXPECT_EQ(AttentionOf(layer).head_dim, 64);
  EXPECT_EQ(AttentionOf(layer).scale, 0.125f);
  EXPECT_FALSE(HasBias(AttentionOf(layer)) || MlpOf(layer).bias);
  EXPECT_EQ(AttentionOf(layer).rope, (RopeSpec{10000, 64}));
  EXPECT_EQ(MlpOf(layer), MlpSpec{.hidden = 5632});
}

TEST(PublishedConfigs, Llama2With13Billion) {
  const ModelSpec spec = Read(R"({"_name_or_path": "meta-llama/Llama-2-13b-hf",
      "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
      "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 13824, "max_position_embeddings": 4096,
      "model_type": "llama", "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 40,
      "pretraining_tp": 2, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false,
      "torch_dtype": "float16", "transformers_version": "4.32.0.dev0", "use_cache": true, "vocab_size": 32000})");
  EXPECT_EQ(AttentionOf(spec.layers[0]).rope, (RopeSpec{10000, 128}));
  EXPECT_EQ(AttentionOf(spec.layers[0]).kv_heads, 40);
}

TEST(PublishedConfigs, Llama32) {
  const ModelSpec spec = Read(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
      "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
      "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
      "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0",
      "use_cache": true, "vocab_size": 128256})");
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(spec.max_context, 131072);
  const RopeSpec& rope = *AttentionOf(spec.layers[0]).rope;
  EXPECT_EQ(rope.theta, 500000);
  EXPECT_EQ(rope.scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(rope.scaling.factor, 32);
  EXPECT_EQ(rope.scaling.low_freq, 1);
  EXPECT_EQ(rope.scaling.high_freq, 4);
  EXPECT_EQ(rope.scaling.original_context, 8192);
}

TEST(PublishedConfigs, SmolLM2) {
  const ModelSpec spec = Read(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
      "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
      "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
      "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
      "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers.js_config": {"kv_cache_dtype": {}},
      "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152})");
  EXPECT_EQ(AttentionOf(spec.layers[29]).rope, (RopeSpec{100000, 64}));
  EXPECT_TRUE(spec.tied_head);
}

TEST(PublishedConfigs, Mistral) {
  const ModelSpec spec =
      Read(R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0",
      "use_cache": true, "vocab_size": 32000})");
  for (const LayerSpec& layer : spec.layers) EXPECT_EQ(AttentionOf(layer).window, WindowSpec{4096});
}

const char* const kQwen25 = R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896,
    "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936})";

TEST(PublishedConfigs, Qwen25) {
  const ModelSpec spec = Read(kQwen25);
  EXPECT_TRUE(spec.tied_head);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_TRUE(AttentionOf(layer).q_bias && AttentionOf(layer).kv_bias);
    EXPECT_FALSE(AttentionOf(layer).out_bias || MlpOf(layer).bias || AttentionOf(layer).window ||
                 AttentionOf(layer).qk_norm);
  }
}

TEST(PublishedConfigs, Qwen25ForLongContexts) {
  Json config = ParseJson(kQwen25, "config.json");
  config["rope_scaling"] = {{"factor", 4.0}, {"original_max_position_embeddings", 32768}, {"type", "yarn"}};
  const ModelSpec spec = Read(config);
  const RopeScaling& scaling = AttentionOf(spec.layers[0]).rope->scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(scaling.factor, 4);
  EXPECT_EQ(scaling.original_context, 32768);
  EXPECT_EQ(scaling.attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(spec.max_context, 131072);
}

TEST(PublishedConfigs, Qwen3) {
  const ModelSpec spec = Read(R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
      "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
  const AttentionSpec& attn = AttentionOf(spec.layers[0]);
  EXPECT_EQ(attn.head_dim, 128);
  EXPECT_EQ(attn.q_width(), 2048);
  EXPECT_EQ(attn.scale, 1 / std::sqrt(128.f));
  EXPECT_EQ(attn.qk_norm, QkNorm{NormSpec{1e-6f}});
  EXPECT_FALSE(HasBias(attn));
}

void CheckGemma(const ModelSpec& spec, int global_every, int window) {
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(spec.embed_scale, std::sqrt(float(spec.width)));
  const NormSpec norm{1e-6f};
  EXPECT_EQ(spec.final_norm, norm);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const bool global = (int(i) + 1) % global_every == 0;
    EXPECT_EQ(AttentionOf(layer).window, global ? std::nullopt : std::optional(WindowSpec{window}));
    EXPECT_EQ(AttentionOf(layer).rope->theta, global ? 1e6 : 1e4);
    EXPECT_EQ(layer.pre_mixer, norm);
    EXPECT_EQ(layer.post_mixer, norm);
    EXPECT_EQ(layer.ffn[0].pre, norm);
    EXPECT_EQ(layer.ffn[0].post, norm);
    EXPECT_EQ(AttentionOf(layer).qk_norm, QkNorm{norm});
    EXPECT_EQ(AttentionOf(layer).scale, 1 / 16.f);
    EXPECT_EQ(MlpOf(layer).gate.act, Activation::kGeluTanh);
  }
}

TEST(PublishedConfigs, Gemma3With1Billion) {
  const ModelSpec spec = Read(R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
      "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
      "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
      "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
      "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})");
  ASSERT_EQ(spec.layers.size(), 26u);
  CheckGemma(spec, 6, 512);
  EXPECT_EQ(spec.max_context, 32768);
}

TEST(PublishedConfigs, Gemma3With4BillionSeesImagesToo) {
  const ModelSpec spec =
      Read(R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
      "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
      "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1152, "image_size": 896,
      "model_type": "siglip_vision_model"}})");
  ASSERT_EQ(spec.layers.size(), 34u);
  EXPECT_EQ(spec.vocab, 262208);
  EXPECT_EQ(spec.max_context, 131072);
  CheckGemma(spec, 6, 1024);
  EXPECT_EQ(AttentionOf(spec.layers[0]).rope->scaling, RopeScaling());
  EXPECT_EQ(AttentionOf(spec.layers[5]).rope->scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(AttentionOf(spec.layers[5]).rope->scaling.factor, 8);
}

TEST(Families, KeysOfOldAndNewTransformersAreTheSameModel) {
  int pairs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(PD_TEST_DATA) / "models")) {
    const auto old_path = entry.path() / "config.old.json", new_path = entry.path() / "config.json";
    if (!std::filesystem::exists(old_path)) continue;
    SCOPED_TRACE(entry.path().string());
    const ModelSpec old_spec = Read(ParseJson(ReadTextFile(old_path), "config.old.json"));
    const ModelSpec new_spec = Read(ParseJson(ReadTextFile(new_path), "config.json"));
    EXPECT_EQ(ToJson(old_spec).dump(1), ToJson(new_spec).dump(1));
    ++pairs;
  }
  EXPECT_GE(pairs, 8);
}

TEST(Families, NamesAreUniqueAndKnown) {
  std::set<std::string> seen;
  for (const std::string& type : KnownModelTypes()) {
    EXPECT_TRUE(seen.insert(type).second) << type;
    ASSERT_NE(FindFamily(type), nullptr);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"llama", "mistral", "qwen2", "qwen3", "gemma3_text", "gemma3"}));
  EXPECT_EQ(FindFamily("mixtral"), nullptr);
  EXPECT_EQ(FindFamily(""), nullptr);
}

TEST(Families, QwenWindows) {
  Json config = ParseJson(kQwen25, "config.json");
  config["use_sliding_window"] = true;
  const auto windows = [&] {
    std::string local;
    for (const LayerSpec& layer : Read(config).layers) local += AttentionOf(layer).window ? 'w' : '.';
    return local;
  };
  EXPECT_EQ(windows(), ".....................www");
  EXPECT_EQ(AttentionOf(Read(config).layers[21]).window, WindowSpec{32768});
  config["layer_types"] = Json::array();
  for (int i = 0; i < 24; ++i)
    config["layer_types"].push_back(i % 3 == 0 ? "sliding_attention" : "full_attention");
  EXPECT_EQ(windows(), "w..w..w..w..w..w..w..w..");
  config["use_sliding_window"] = false;
  ExpectError(ErrorKind::kCorruptFile, {"layer_types", "layer 0", "sliding_window"}, [&] { Read(config); });
}

TEST(Families, ActivationsByName) {
  Json config = ParseJson(kQwen25, "config.json");
  const auto activation = [&](const char* name) {
    config["hidden_act"] = name;
    return MlpOf(Read(config).layers[0]).gate.act;
  };
  EXPECT_EQ(activation("silu"), Activation::kSilu);
  EXPECT_EQ(activation("gelu"), Activation::kGelu);
  EXPECT_EQ(activation("gelu_pytorch_tanh"), Activation::kGeluTanh);
  EXPECT_EQ(activation("gelu_new"), Activation::kGeluTanh);
}

const char* const kLlama =
    R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256})";

TEST(Families, LlamaDefaultsAreTransformers) {
  const ModelSpec spec = Read(kLlama);
  EXPECT_EQ(spec.final_norm.eps, 1e-6f);
  EXPECT_EQ(AttentionOf(spec.layers[0]).kv_heads, 4);
  EXPECT_EQ(AttentionOf(spec.layers[0]).head_dim, 16);
  EXPECT_EQ(AttentionOf(spec.layers[0]).rope->theta, 10000);
  EXPECT_FALSE(spec.tied_head);
}

TEST(Families, DynamicScalingReachesBeyondTheTrainedLength) {
  Json config = ParseJson(kLlama, "config.json");
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.5}};
  EXPECT_EQ(Read(config).max_context, 640);
  EXPECT_EQ(AttentionOf(Read(config).layers[0]).rope->scaling.original_context, 256);
}

TEST(Families, OriginalContextOfTheConfigOutranksTheObjects) {
  Json config = ParseJson(kLlama, "config.json");
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 64}};
  EXPECT_EQ(AttentionOf(Read(config).layers[0]).rope->scaling.original_context, 64);
  config["original_max_position_embeddings"] = 128;
  EXPECT_EQ(AttentionOf(Read(config).layers[0]).rope->scaling.original_context, 128);
}

struct Refused {
  const char* name;
  ErrorKind kind;
  std::vector<const char*> named;
  const char* change;  // merged into kLlama, or into the model type's own when it names one
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class RefusedConfigs : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedConfigs, NameTheKey) {
  Json config = ParseJson(kLlama, "config.json");
  config.update(ParseJson(GetParam().change, "change"));
  for (const char* named : GetParam().named)
    ExpectError(GetParam().kind, {"config.json", named}, [&] { Read(config); });
}

std::vector<Refused> AllRefused() {
  constexpr ErrorKind kCorrupt = ErrorKind::kCorruptFile, kUnsupported = ErrorKind::kUnsupported;
  return {
      {"UnknownKey", kUnsupported, {"mystery"}, R"({"mystery": 1})"},
      {"Experts", kUnsupported, {"num_local_experts"}, R"({"num_local_experts": 8})"},
      {"Sinks", kUnsupported, {"attention_sinks"}, R"({"attention_sinks": true})"},
      {"WidthMissing", kCorrupt, {"\"hidden_size\" is missing"}, R"({"hidden_size": null})"},
      {"WidthText", kCorrupt, {"hidden_size", "integer"}, R"({"hidden_size": "64"})"},
      {"WidthNegative", kCorrupt, {"hidden_size"}, R"({"hidden_size": -64})"},
      {"WidthFraction", kCorrupt, {"hidden_size"}, R"({"hidden_size": 64.5})"},
      {"WidthNoMultiple", kCorrupt, {"hidden_size", "num_attention_heads"}, R"({"num_attention_heads": 5})"},
      {"HeadsZero", kCorrupt, {"num_attention_heads"}, R"({"num_attention_heads": 0})"},
      {"HeadDimOdd", kCorrupt, {"rotated dimensions"}, R"({"head_dim": 15})"},
      {"EpsilonZero", kCorrupt, {"rms_norm_eps"}, R"({"rms_norm_eps": 0})"},
      {"EpsilonHuge", kCorrupt, {"rms_norm_eps"}, R"({"rms_norm_eps": 1e300})"},
      {"Activation", kUnsupported, {"hidden_act", "relu2"}, R"({"hidden_act": "relu2"})"},
      {"LlamaWindow", kUnsupported, {"sliding_window"}, R"({"sliding_window": 64})"},
      {"Interleaved", kUnsupported, {"rope_interleaved"}, R"({"rope_interleaved": true})"},
      {"PartialRotation", kUnsupported, {"partial_rotary_factor"}, R"({"partial_rotary_factor": 0.5})"},
      {"CrossAttention", kUnsupported, {"add_cross_attention"}, R"({"add_cross_attention": true})"},
      {"PrunedHeads", kUnsupported, {"pruned_heads"}, R"({"pruned_heads": {"0": [1]}})"},
      {"ThetaOne", kCorrupt, {"RoPE base"}, R"({"rope_theta": 1.0})"},
      {"ThetaNegative", kCorrupt, {"rope_theta"}, R"({"rope_theta": -10000})"},
      {"RopeTwice",
       kUnsupported,
       {"rope_scaling", "rope_parameters"},
       R"({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "default"}})"},
      {"RopeText", kCorrupt, {"rope_scaling", "object"}, R"({"rope_scaling": "linear"})"},
      {"RopeUnknownType",
       kUnsupported,
       {"rope_type", "spiral"},
       R"({"rope_scaling": {"rope_type": "spiral"}})"},
      {"RopeTwoTypes",
       kCorrupt,
       {"rope_type", "\"type\""},
       R"({"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2}})"},
      {"RopeUnknownKey",
       kUnsupported,
       {"rope_scaling", "twist"},
       R"({"rope_scaling": {"type": "linear", "factor": 2, "twist": 1}})"},
      {"RopeNoFactor", kCorrupt, {"factor"}, R"({"rope_scaling": {"type": "linear"}})"},
      {"RopeFactorZero", kCorrupt, {"factor"}, R"({"rope_scaling": {"type": "linear", "factor": 0}})"},
      {"RopePartial",
       kUnsupported,
       {"partial_rotary_factor"},
       R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}})"},
      {"RopeNested",
       kUnsupported,
       {"full_attention"},
       R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})"},
      {"Llama3Reversed",
       kCorrupt,
       {"high_freq_factor"},
       R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}})"},
      {"YarnNegativeBeta",
       kCorrupt,
       {"beta_fast"},
       R"({"rope_scaling": {"type": "yarn", "factor": 8, "beta_fast": -1}})"},
      {"LongropeShortList",
       kCorrupt,
       {"short_factor", "8 numbers"},
       R"({"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]}})"},
      {"LongropeNegative",
       kCorrupt,
       {"short_factor", "-1"},
       R"({"rope_scaling": {"type": "longrope", "short_factor": [1,1,1,1,1,1,1,-1],
           "long_factor": [1,1,1,1,1,1,1,1]}})"},
      {"MistralWithoutWindow", kCorrupt, {"sliding_window"}, R"({"model_type": "mistral"})"},
      {"MistralLayerTypes",
       kUnsupported,
       {"layer_types"},
       R"({"model_type": "mistral", "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]})"},
      {"QwenLayerType",
       kUnsupported,
       {"layer_types", "linear_attention"},
       R"({"model_type": "qwen3", "layer_types": ["full_attention", "linear_attention"]})"},
      {"QwenLayerTypesTooFew",
       kCorrupt,
       {"layer_types", "2 names"},
       R"({"model_type": "qwen3", "layer_types": ["full_attention"]})"},
      {"QwenImagePositions", kUnsupported, {"use_mrope"}, R"({"model_type": "qwen2", "use_mrope": true})"},
      {"QwenExperts", kUnsupported, {"num_experts"}, R"({"model_type": "qwen3", "num_experts": 8})"},
      {"GemmaBidirectional",
       kUnsupported,
       {"use_bidirectional_attention"},
       R"({"model_type": "gemma3_text", "sliding_window": 8, "use_bidirectional_attention": true})"},
      {"GemmaNoWindow", kCorrupt, {"sliding_window"}, R"({"model_type": "gemma3_text"})"},
      {"GemmaFlatRope",
       kUnsupported,
       {"rope_parameters", "rope_theta"},
       R"({"model_type": "gemma3_text", "sliding_window": 8,
           "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})"},
      {"GemmaPatternZero",
       kCorrupt,
       {"sliding_window_pattern"},
       R"({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 0})"},
      {"GemmaText",
       kUnsupported,
       {"text_config", "model_type"},
       R"({"model_type": "gemma3", "hidden_size": null,
          "vocab_size": null, "intermediate_size": null, "num_hidden_layers": null, "num_attention_heads": null,
          "max_position_embeddings": null, "text_config": {"model_type": "gemma2"}})"},
      {"GemmaCap",
       kCorrupt,
       {"final_logit_softcapping"},
       R"({"model_type": "gemma3_text", "sliding_window": 8, "final_logit_softcapping": -30})"}};
}

INSTANTIATE_TEST_SUITE_P(Each, RefusedConfigs, ::testing::ValuesIn(AllRefused()),
                         [](const auto& refused) { return refused.param.name; });

}  // namespace
}  // namespace pd::test
