#include "formats/gguf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "formats/gguf_model.h"
#include "model/rope.h"
#include "tests/expect_error.h"
#include "tests/formats/tiny_checkpoints.h"

namespace pd::test {
namespace {

std::shared_ptr<const GgufFile> Parse(const GgufSpec& spec) {
  auto owner = std::make_shared<std::string>(spec.Bytes());
  return GgufFile::Parse(std::as_bytes(std::span(owner->data(), owner->size())), owner, "f.gguf");
}
ModelSource Open(const GgufSpec& spec) { return OpenGgufModel(Parse(spec)); }

std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

GgufEntry* Find(GgufSpec& spec, const std::string& key) {
  for (GgufEntry& entry : spec.entries)
    if (entry.key == key) return &entry;
  return nullptr;
}
void Set(GgufSpec& spec, GgufEntry entry) {
  GgufEntry* there = Find(spec, entry.key);
  if (there)
    *there = std::move(entry);
  else
    spec.entries.push_back(std::move(entry));
}
void Erase(GgufSpec& spec, const std::string& key) {
  std::erase_if(spec.entries, [&](const GgufEntry& entry) { return entry.key == key; });
}
GgufTensorSpec* FindTensor(GgufSpec& spec, const std::string& name) {
  for (GgufTensorSpec& tensor : spec.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

TEST(GgufConfig, OptionalKeysHaveLlamaCppsDefaults) {
  GgufSpec spec = AsGguf(TinyLlama());
  for (const char* key : {"llama.attention.key_length", "llama.attention.value_length",
                          "llama.rope.freq_base", "llama.rope.dimension_count", "llama.vocab_size"})
    Erase(spec, key);
  const ModelSource source = Open(spec);
  EXPECT_EQ(AttentionOf(source.spec.layers[0]).head_dim, 8);
  EXPECT_EQ(AttentionOf(source.spec.layers[0]).rope->theta, 10000);
  EXPECT_EQ(source.spec.vocab, 40);

  GgufSpec mha = AsGguf(TinyQwen3());  // as many KV heads as heads
  Erase(mha, "qwen3.attention.head_count_kv");
  EXPECT_EQ(AttentionOf(Open(mha).spec.layers[0]).kv_heads, 2);
}

TEST(GgufConfig, HarmlessKeysAreSkipped) {
  GgufSpec spec = AsGguf(TinyQwen2());
  spec.entries.push_back(Flag("qwen2.rope.scaling.finetuned", true));
  spec.entries.push_back(U32("qwen2.expert_count", 0));
  spec.entries.push_back(U32("qwen2.pooling_type", 0));
  spec.entries.push_back(Flag("qwen2.attention.causal", true));
  spec.entries.push_back(Text("general.anything", "x"));
  spec.entries.push_back(U32("tokenizer.ggml.bos_token_id", 1));
  EXPECT_EQ(Open(spec).spec, Open(AsGguf(TinyQwen2())).spec);
}

TEST(GgufConfig, AListWithTheSameNumberForEachLayerIsThatNumber) {
  GgufSpec spec = AsGguf(TinyQwen3());
  const ModelSpec plain = Open(spec).spec;
  for (const char* key :
       {"qwen3.attention.head_count", "qwen3.attention.head_count_kv", "qwen3.feed_forward_length"}) {
    const std::string value = Find(spec, key)->value;
    Set(spec, List(key, kU32, 2, value + value));
  }
  EXPECT_EQ(Open(spec).spec, plain);
}

TEST(GgufConfig, AWindowThatReachesAllPositionsIsNone) {
  const ModelSpec plain = Open(AsGguf(TinyQwen3())).spec;
  for (const uint32_t window : {0u, 1u << 30}) {
    GgufSpec spec = AsGguf(TinyQwen3());
    Set(spec, U32("qwen3.attention.sliding_window", window));
    EXPECT_EQ(Open(spec).spec, plain);
  }
  GgufSpec gemma = AsGguf(TinyGemma3());
  Set(gemma, U32("gemma3.attention.sliding_window", 0));
  for (const auto& layer : Open(gemma).spec.layers) EXPECT_EQ(AttentionOf(layer).window, std::nullopt);
}

RopeScaling Scaling(const GgufSpec& spec) { return AttentionOf(Open(spec).spec.layers[0]).rope->scaling; }

TEST(GgufConfig, LinearScaling) {
  for (const bool named : {true, false}) {  // linear is what a factor alone means
    GgufSpec spec = AsGguf(TinyLlama());
    if (named) spec.entries.push_back(Text("llama.rope.scaling.type", "linear"));
    spec.entries.push_back(Float(named ? "llama.rope.scaling.factor" : "llama.rope.scale_linear", 4));
    EXPECT_EQ(Scaling(spec).kind, RopeScaling::Kind::kLinear);
    EXPECT_EQ(Scaling(spec).factor, 4);
  }
  GgufSpec none = AsGguf(TinyLlama());
  none.entries.push_back(Text("llama.rope.scaling.type", "none"));
  none.entries.push_back(Float("llama.rope.scaling.factor", 4));
  EXPECT_EQ(Scaling(none), RopeScaling());
}

TEST(GgufConfig, YarnScaling) {
  GgufSpec spec = AsGguf(TinyLlama());
  spec.entries.push_back(Text("llama.rope.scaling.type", "yarn"));
  spec.entries.push_back(Float("llama.rope.scaling.factor", 4));
  spec.entries.push_back(U32("llama.rope.scaling.original_context_length", 32));
  spec.entries.push_back(Float("llama.rope.scaling.yarn_beta_fast", 16));
  const RopeScaling yarn = Scaling(spec);
  const double temperature = 0.1 * std::log(4.0) + 1;
  EXPECT_EQ(yarn.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(yarn.factor, 4);
  EXPECT_EQ(yarn.original_context, 32);
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_EQ(yarn.attention_factor, temperature);
  // One key multiplies the temperature, the other replaces it.
  spec.entries.push_back(Float("llama.rope.scaling.attn_factor", 0.5));
  EXPECT_EQ(Scaling(spec).attention_factor, 0.5 * temperature);
  spec.entries.push_back(Float("llama.rope.scaling.yarn_attn_factor", 1.25));
  EXPECT_EQ(Scaling(spec).attention_factor, 1.25);
}

TEST(GgufConfig, Longrope) {
  GgufSpec spec = AsGguf(TinyLlama());
  spec.entries.push_back(Text("llama.rope.scaling.type", "longrope"));
  spec.entries.push_back(U32("llama.rope.scaling.original_context_length", 32));
  spec.entries.push_back(Float("llama.rope.scaling.attn_factor", 1.5));
  spec.tensors.push_back({"rope_factors_short.weight", {4}, kTensorF32, Floats({1, 2, 3, 4})});
  spec.tensors.push_back({"rope_factors_long.weight", {4}, kTensorF32, Floats({5, 6, 7, 8})});
  const RopeScaling scaling = Scaling(spec);
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kLongrope);
  EXPECT_EQ(scaling.factors, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(scaling.long_factors, (std::vector<double>{5, 6, 7, 8}));
  EXPECT_EQ(scaling.original_context, 32);
  EXPECT_EQ(scaling.attention_factor, 1.5);
}

// A folder says "llama3", the GGUF of the same model lists divisors: the frequencies must agree to float
// precision.
TEST(GgufConfig, Llama3FactorsAreTheFoldersFrequencies) {
  const auto models = std::filesystem::path(PD_TEST_DATA) / "models";
  const ModelSource folder = OpenModel(models / "llama-llama3"),
                    gguf = OpenModel(models / "llama-llama3.f32.gguf");
  const RopeSpec &ours = *AttentionOf(gguf.spec.layers[0]).rope,
                 &theirs = *AttentionOf(folder.spec.layers[0]).rope;
  EXPECT_EQ(ours.scaling.kind, RopeScaling::Kind::kFactors);
  EXPECT_EQ(theirs.scaling.kind, RopeScaling::Kind::kLlama3);
  const RopeFrequencies a = Frequencies(ours, {}), b = Frequencies(theirs, {});
  ASSERT_EQ(a.inverse.size(), b.inverse.size());
  for (size_t i = 0; i < a.inverse.size(); ++i)
    EXPECT_NEAR(a.inverse[i] / b.inverse[i], 1, 4 * std::numeric_limits<float>::epsilon());
}

TEST(GgufConfig, GemmaLayers) {
  const auto windows = [](const GgufSpec& spec) {
    std::string local;
    for (const LayerSpec& layer : Open(spec).spec.layers)
      local += AttentionOf(layer).window ? (AttentionOf(layer).rope->theta == 10000 ? 'w' : '?') : '.';
    return local;
  };
  GgufSpec spec = AsGguf(TinyGemma3());
  EXPECT_EQ(windows(spec), "w.");
  const std::string key = "gemma3.attention.sliding_window_pattern";
  Set(spec, List(key, kBool, 2, Raw(uint8_t(0)) + Raw(uint8_t(1))));
  EXPECT_EQ(windows(spec), ".w");
  Erase(spec, key);
  EXPECT_EQ(windows(spec), "ww");  // every sixth is global
  Set(spec, Float("gemma3.rope.freq_base_swa", 20000));
  EXPECT_EQ(AttentionOf(Open(spec).spec.layers[0]).rope->theta, 20000);
  Erase(spec, "gemma3.attention.sliding_window");
  EXPECT_EQ(windows(spec), "..");
}

TEST(GgufConfig, GemmaScoreScaleOf27Billion) {
  GgufSpec spec = AsGguf(TinyGemma3());
  EXPECT_EQ(ReadGgufConfig(*Parse(spec)).config["query_pre_attn_scalar"], 16);  // the head size
  Set(spec, U32("gemma3.block_count", 62));
  EXPECT_EQ(ReadGgufConfig(*Parse(spec)).config["query_pre_attn_scalar"], 8);  // width 32, 4 heads
}

struct BadMetadata {
  const char* name;
  ErrorKind kind;
  std::vector<const char*> named;
  void (*bend)(GgufSpec&);
};
void PrintTo(const BadMetadata& bad, std::ostream* out) { *out << bad.name; }

class BadMetadatas : public ::testing::TestWithParam<BadMetadata> {};

TEST_P(BadMetadatas, AreRefused) {
  GgufSpec spec = AsGguf(TinyLlama());
  GetParam().bend(spec);
  for (const char* named : GetParam().named)
    ExpectError(GetParam().kind, {"f.gguf", named}, [&] { Open(spec); });
}

std::vector<BadMetadata> AllBadMetadatas() {
  constexpr ErrorKind kCorrupt = ErrorKind::kCorruptFile, kUnsupported = ErrorKind::kUnsupported;
  return {
      {"NoArchitecture",
       kCorrupt,
       {"general.architecture"},
       [](GgufSpec& f) { Erase(f, "general.architecture"); }},
      {"Architecture",
       kUnsupported,
       {"\"mamba\"", "known are llama"},
       [](GgufSpec& f) { Set(f, Text("general.architecture", "mamba")); }},
      {"UnknownKey",
       kUnsupported,
       {"llama.mystery_scale", "newer version"},
       [](GgufSpec& f) { Set(f, Float("llama.mystery_scale", 2)); }},
      {"Experts",
       kUnsupported,
       {"llama.expert_count"},
       [](GgufSpec& f) { Set(f, U32("llama.expert_count", 8)); }},
      {"NotCausal",
       kUnsupported,
       {"llama.attention.causal"},
       [](GgufSpec& f) { Set(f, Flag("llama.attention.causal", false)); }},
      {"Window",
       kUnsupported,
       {"llama.attention.sliding_window"},
       [](GgufSpec& f) { Set(f, U32("llama.attention.sliding_window", 64)); }},
      {"KeyMissing",
       kCorrupt,
       {"llama.block_count", "missing"},
       [](GgufSpec& f) { Erase(f, "llama.block_count"); }},
      {"KeyOfAnotherType",
       kCorrupt,
       {"llama.block_count", "type"},
       [](GgufSpec& f) { Set(f, Text("llama.block_count", "2")); }},
      {"HeadsPerLayer",
       kUnsupported,
       {"llama.attention.head_count", "list"},
       [](GgufSpec& f) {
         Set(f, List("llama.attention.head_count", kU32, 2, Raw(uint32_t(4)) + Raw(uint32_t(2))));
       }},
      {"HeadsOfNoLayer",
       kUnsupported,
       {"llama.attention.head_count", "list"},
       [](GgufSpec& f) { Set(f, List("llama.attention.head_count", kU32, 0, "")); }},
      {"LayersTooMany",
       kCorrupt,
       {"num_hidden_layers", "4096"},
       [](GgufSpec& f) { Set(f, U32("llama.block_count", 2000000000)); }},
      {"HeadsZero",
       kCorrupt,
       {"num_attention_heads"},
       [](GgufSpec& f) { Set(f, U32("llama.attention.head_count", 0)); }},
      {"ThetaNan",
       kCorrupt,
       {"llama.rope.freq_base", "finite"},
       [](GgufSpec& f) { Set(f, Float("llama.rope.freq_base", std::numeric_limits<float>::quiet_NaN())); }},
      {"EpsilonInfinite",
       kCorrupt,
       {"layer_norm_rms_epsilon", "finite"},
       [](GgufSpec& f) {
         Set(f, Float("llama.attention.layer_norm_rms_epsilon", std::numeric_limits<float>::infinity()));
       }},
      {"ValueLength",
       kUnsupported,
       {"llama.attention.value_length"},
       [](GgufSpec& f) { Set(f, U32("llama.attention.value_length", 16)); }},
      {"PartialRotation",
       kUnsupported,
       {"llama.rope.dimension_count"},
       [](GgufSpec& f) { Set(f, U32("llama.rope.dimension_count", 4)); }},
      {"ScalingType",
       kUnsupported,
       {"llama.rope.scaling.type"},
       [](GgufSpec& f) { Set(f, Text("llama.rope.scaling.type", "spiral")); }},
      {"AttentionFactorAlone",
       kUnsupported,
       {"llama.rope.scaling.attn_factor"},
       [](GgufSpec& f) { Set(f, Float("llama.rope.scaling.attn_factor", 1.5)); }},
      {"LongropeWithoutFactors",
       kCorrupt,
       {"rope_factors_short.weight"},
       [](GgufSpec& f) { Set(f, Text("llama.rope.scaling.type", "longrope")); }},
      {"FactorsWithoutLongrope",
       kUnsupported,
       {"rope_factors_long.weight"},
       [](GgufSpec& f) {
         f.tensors.push_back({"rope_factors_long.weight", {4}, kTensorF32, std::string(16, 0)});
       }},
      {"FactorsTooMany",
       kCorrupt,
       {"rope_freqs.weight", "4 values"},
       [](GgufSpec& f) { f.tensors.push_back({"rope_freqs.weight", {8}, kTensorF32, std::string(32, 1)}); }},
      {"FactorsZero",
       kCorrupt,
       {"rope_freqs.weight", "above 0"},
       [](GgufSpec& f) { f.tensors.push_back({"rope_freqs.weight", {4}, kTensorF32, std::string(16, 0)}); }},
      {"FactorsTwice",
       kUnsupported,
       {"rope_freqs.weight"},
       [](GgufSpec& f) {
         Set(f, Float("llama.rope.scaling.factor", 2));
         f.tensors.push_back({"rope_freqs.weight", {4}, kTensorF32, Floats({1, 1, 1, 1})});
       }},
      {"LocalLayersOutsideGemma",
       kUnsupported,
       {"llama.attention.sliding_window", "8"},
       [](GgufSpec& f) { Set(f, U32("llama.attention.sliding_window", 8)); }},
      {"NoEmbedding",
       kCorrupt,
       {"token_embd.weight"},
       [](GgufSpec& f) { FindTensor(f, "token_embd.weight")->name = "other"; }},
      {"EmbeddingNoMatrix",
       kCorrupt,
       {"token_embd.weight", "matrix"},
       [](GgufSpec& f) { FindTensor(f, "token_embd.weight")->sizes = {1280}; }},
      {"TensorMissing",
       kCorrupt,
       {"blk.1.attn_k.weight", "missing"},
       [](GgufSpec& f) {
         std::erase_if(f.tensors, [](const auto& t) { return t.name == "blk.1.attn_k.weight"; });
       }},
      {"TensorOfAnotherShape",
       kCorrupt,
       {"blk.1.attn_k.weight", "[16, 32]", "[32, 16]"},
       [](GgufSpec& f) { FindTensor(f, "blk.1.attn_k.weight")->sizes = {16, 32}; }},
      {"QuantisedBias", kUnsupported, {"blk.0.attn_q.bias", "bias"}, [](GgufSpec& f) {
         GgufTensorSpec& bias = *FindTensor(f, "blk.0.attn_q.bias");
         bias.type = kTensorQ8_0;
         bias.data.resize(34);
       }}};
}

INSTANTIATE_TEST_SUITE_P(Each, BadMetadatas, ::testing::ValuesIn(AllBadMetadatas()),
                         [](const auto& bad) { return bad.param.name; });

}  // namespace
}  // namespace pd::test
