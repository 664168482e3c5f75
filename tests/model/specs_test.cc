// Models that no backend computes yet, written as specs: their weights are those of transformers.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "model/memory.h"
#include "model/weights.h"

namespace pd {
namespace {

constexpr NormSpec kRms{.eps = 1e-6f};

// What tools/make_parameter_counts.py found in transformers.
int64_t Published(const std::string& model) {
  static const Json counts = ParseJson(ReadTextFile(PD_TEST_DATA "/models/parameter_counts.json"), "counts");
  return counts.at("counts").at(model).get<int64_t>();
}

int64_t Count(const ModelSpec& spec) {
  int64_t total = 0;
  for (const WeightInfo& info : ListWeights(spec)) {
    int64_t count = 1;
    for (int64_t d : info.shape) count *= d;
    total += count;
  }
  return total;
}

// Sizes that all models here share.
ModelSpec Sized(std::vector<LayerSpec> layers) {
  ModelSpec spec;
  spec.width = 40, spec.vocab = 96, spec.max_context = 256;
  spec.layers = std::move(layers);
  spec.final_norm = kRms;
  return spec;
}

AttentionSpec Grouped(int head_dim) {
  AttentionSpec a;
  a.heads = 4, a.kv_heads = 2, a.head_dim = head_dim;
  a.scale = 1 / std::sqrt(float(head_dim));
  a.rope = RopeSpec{10000, head_dim};
  return a;
}

MoeSpec Experts() {
  MoeSpec moe;
  moe.experts = 6, moe.active = 2;
  moe.expert = {.hidden = 24};
  return moe;
}

LayerSpec PreNorm(MixerSpec mixer, FeedSpec feed) {
  LayerSpec layer = PreNormLayer(kRms, std::move(mixer), {});
  layer.ffn[0].body = std::move(feed);
  return layer;
}

// Three delta nets, then attention with a gate.
std::vector<LayerSpec> Qwen35Layers(const FeedSpec& feed) {
  DeltaNetSpec delta{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12};
  delta.conv = {.channels = 2 * 16 + 48, .taps = 4};
  delta.norm = kRms;
  AttentionSpec attention = Grouped(16);
  attention.rope->dims = 4;
  attention.qk_norm = QkNorm{kRms};
  attention.gate = GateSpec{.act = Activation::kSigmoid};
  std::vector<LayerSpec> layers(3, PreNorm(delta, feed));
  layers.push_back(PreNorm(attention, feed));
  return layers;
}

ModelSpec Qwen35() { return Sized(Qwen35Layers(MlpSpec{.hidden = 56})); }

ModelSpec Qwen35Moe() {
  MoeSpec moe = Experts();
  moe.router.normalise = true;
  moe.shared = MlpSpec{.hidden = 20};
  moe.shared_gate = true;
  return Sized(Qwen35Layers(moe));
}

ModelSpec GptOss() {
  AttentionSpec attention = Grouped(16);
  attention.sinks = attention.q_bias = attention.kv_bias = attention.out_bias = true;
  MoeSpec moe = Experts();
  moe.router.bias = true;
  moe.expert.bias = true;
  moe.expert.gate = {.sigmoid_gain = 1.702f, .up_offset = 1, .limit = 7.f};
  LayerSpec local = PreNorm(attention, moe), full = local;
  AttentionOf(local).window = WindowSpec{8};
  return Sized({local, full});
}

ModelSpec Lfm2() {
  const ShortConvSpec conv{.conv = {.channels = 40, .taps = 3, .act = Activation::kIdentity}};
  AttentionSpec attention = Grouped(10);
  attention.qk_norm = QkNorm{kRms};
  const MlpSpec mlp{.hidden = 56};
  ModelSpec spec = Sized({PreNorm(conv, mlp), PreNorm(attention, mlp), PreNorm(conv, mlp)});
  spec.tied_head = true;
  return spec;
}

// Dense and expert branches side by side, keys that serve as values, embeddings of each layer's own.
ModelSpec Gemma4() {
  AttentionSpec local = Grouped(8);
  local.qk_norm = QkNorm{kRms};
  local.v_norm = NormSpec{.gain = false};
  local.scale = 1;
  AttentionSpec full = local;
  full.kv_heads = 1, full.head_dim = 16;
  full.values = Values::kKeyProjection;
  full.rope = RopeSpec{.theta = 1e6, .dims = 16, .pairs = 2};
  local.window = WindowSpec{8};
  MoeSpec moe = Experts();
  moe.expert.gate.act = Activation::kGeluTanh;
  moe.router.normalise = moe.router.expert_scale = true;
  moe.router.norm = NormSpec{.gain = false};
  LayerSpec layer = PreNorm(local, MlpSpec{.hidden = 56, .gate = {.act = Activation::kGeluTanh}});
  layer.post_mixer = layer.ffn[0].post = kRms;
  layer.ffn.push_back({.pre = kRms, .body = moe, .post = kRms});
  layer.post_ffn = kRms;
  layer.scalar = true;
  layer.per_layer = PerLayerSpec{.post = kRms};
  LayerSpec global = layer;
  global.mixer = full;
  ModelSpec spec = Sized({layer, layer, global, layer, layer, global});
  spec.tied_head = true;
  spec.per_layer = PerLayerInputs{.vocab = 96, .dim = 12, .norm = kRms};
  return spec;
}

// One mixer or one MLP a layer.
ModelSpec NemotronH() {
  MambaSpec mamba{.heads = 6, .head_dim = 8, .groups = 2, .state = 16};
  mamba.conv = {.channels = 48 + 2 * 2 * 16, .taps = 4, .bias = true};
  LayerSpec recurrent;
  recurrent.pre_mixer = kRms;
  recurrent.mixer = mamba;
  LayerSpec attention = recurrent;
  attention.mixer = Grouped(10);
  LayerSpec mlp;
  mlp.ffn = {
      {.pre = kRms, .body = MlpSpec{.hidden = 56, .gate = {.act = Activation::kRelu2}, .gated = false}}};
  return Sized({recurrent, attention, mlp, recurrent});
}

ModelSpec LlamaLora() {
  ModelSpec spec = Sized(std::vector<LayerSpec>(2, PreNormLayer(kRms, Grouped(10), {.hidden = 56})));
  spec.adapters = {{.name = "style", .rank = 4, .scale = 2, .matrices = {"q", "v", "down"}}};
  return spec;
}

struct Case {
  const char* name;
  ModelSpec spec;
};
std::vector<Case> Cases() {
  return {{"qwen3_5", Qwen35()}, {"qwen3_5_moe", Qwen35Moe()}, {"gpt_oss", GptOss()},      {"lfm2", Lfm2()},
          {"gemma4", Gemma4()},  {"nemotron_h", NemotronH()},  {"llama_lora", LlamaLora()}};
}

TEST(Specs, HaveTheParametersOfTransformers) {
  for (const Case& c : Cases()) {
    EXPECT_NO_THROW(CheckSpec(c.spec, c.name));
    EXPECT_EQ(Count(c.spec), Published(c.name)) << c.name;
  }
}

TEST(Specs, EveryWeightHasANameOfItsOwn) {
  for (const Case& c : Cases()) {
    std::set<std::string> names;
    for (const WeightInfo& info : ListWeights(c.spec))
      EXPECT_TRUE(names.insert(info.Name()).second) << info.Name();
  }
}

TEST(Specs, TheWalkIsTheSameForConstTrees) {
  const ModelSpec spec = Gemma4();
  Weights<std::string> names;
  MakeRoom(spec, names);
  ForEachWeight(spec, names, [](std::string& name, const WeightInfo& info) { name = info.Name(); });
  const Weights<std::string>& constant = names;
  ForEachWeight(spec, constant,
                [](const std::string& name, const WeightInfo& info) { EXPECT_EQ(name, info.Name()); });
  const auto lengths = MapWeights<size_t>(
      spec, constant, [](const std::string& name, const WeightInfo&) { return name.size(); });
  EXPECT_EQ(lengths.layers[1].ffn[1].pre.gain, std::string("layers.1.pre_mlp.1").size());
}

TEST(Specs, DigestsTellEveryFieldApart) {
  std::set<uint64_t> digests;
  for (const Case& c : Cases()) EXPECT_TRUE(digests.insert(SpecDigest(c.spec)).second) << c.name;
  ModelSpec spec = Gemma4();
  const auto changed = [&](auto change) {
    ModelSpec other = spec;
    change(other);
    EXPECT_TRUE(digests.insert(SpecDigest(other)).second);
  };
  changed([](ModelSpec& m) { AttentionOf(m.layers[0]).window->chunked = true; });
  changed([](ModelSpec& m) { AttentionOf(m.layers[2]).rope->pairs = 3; });
  changed([](ModelSpec& m) { std::get<MoeSpec>(m.layers[0].ffn[1].body).router.scale = 2; });
  changed([](ModelSpec& m) { m.layers[5].scalar = false; });
  changed([](ModelSpec& m) { m.logit_scale = 2; });
}

// ---- memory ----

TEST(Specs, CountTheirMemory) {
  const MemoryFormat halves{.kv = DType::kF16};
  // Three delta nets: [4, 8, 12] states and tails of 3 x 80, in f32; one layer of 2 x 2 x 16 halves a token.
  const size_t states = 3 * 4 * (4 * 8 * 12 + 3 * 80);
  EXPECT_EQ(MemoryBytes(Qwen35(), halves, 0), states);
  EXPECT_EQ(MemoryBytes(Qwen35(), halves, 10), states + 10 * 2 * 2 * 16 * 2);
  EXPECT_EQ(MemoryBytes(Qwen35(), {0, 3}, halves, 10), states);
  EXPECT_EQ(MemoryBytes(NemotronH(), halves, 0), 2 * 4u * (6 * 8 * 16 + 3 * 112));
  EXPECT_EQ(MemoryBytes(Lfm2(), halves, 1), 2 * 4u * 2 * 40 + 2 * 2 * 10 * 2);
  EXPECT_EQ(LastMemory(Qwen35()), 3);
  ModelSpec shared = Gemma4();
  for (int i : {3, 4}) AttentionOf(shared.layers[size_t(i)]).kv_from = 1;
  AttentionOf(shared.layers[5]).kv_from = 2;
  EXPECT_NO_THROW(CheckSpec(shared, "gemma4"));
  EXPECT_EQ(LastMemory(shared), 2);
  EXPECT_EQ(MemoryBytes(shared, halves, 1) * 2, MemoryBytes(Gemma4(), halves, 1));
}

}  // namespace
}  // namespace pd
