// Weights on the device hold exactly what the file holds.
#include "mlx/weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>

#include "base/error.h"
#include "formats/model_source.h"
#include "tests/error_table.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

// A matrix of random blocks: every code, and scales of every size that occurs.
TensorView RandomBlocks(DType type, int64_t rows, int64_t columns, unsigned seed) {
  auto bytes = std::make_shared<std::vector<std::byte>>(size_t(rows) * RowBytes(type, columns));
  std::mt19937 generator(seed);
  for (std::byte& b : *bytes) b = std::byte(generator());
  const bool large = Info(type).block_values == 256;
  const bool has_minimum =
      type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4K || type == DType::kQ5K;
  const auto block = size_t(Info(type).block_bytes);
  for (size_t at = 0; at < bytes->size(); at += block) {
    const float size = std::exp2(-float(generator() % 16)) / (large ? 32 : 1);
    const F16 scale = ToF16((generator() % 2 ? size : -size) * (1 + float(generator() % 1000) / 1000));
    std::memcpy(&(*bytes)[at + (type == DType::kQ6K ? 208 : 0)], &scale, 2);
    const F16 minimum = ToF16(-3 * size * float(generator() % 1000) / 1000);
    if (has_minimum) std::memcpy(&(*bytes)[at + 2], &minimum, 2);
  }
  return {"blocks", type, {rows, columns}, *bytes, bytes, 0};
}

// A model of one layer whose matrices are all of `type`.
test::TinyModel QuantisedModel(DType type) {
  const bool large = Info(type).block_values == 256;
  ModelSpec spec;
  spec.width = large ? 256 : 64, spec.vocab = 96, spec.max_context = 64, spec.tied_head = false;
  AttentionSpec attention;
  attention.heads = 4, attention.kv_heads = 2, attention.head_dim = spec.width / 4;
  attention.q_bias = attention.kv_bias = true;
  attention.rope = RopeSpec{10000, 16};
  LayerSpec layer = PreNormLayer({}, attention, {.hidden = large ? 512 : 96});
  layer.post_mixer = NormSpec{1e-6f};
  spec.layers = {layer};
  test::TinyModel model = test::RandomModel(spec);
  unsigned seed = 1;
  ForEachWeight(spec, model.tensors, [&](TensorView& t, const WeightInfo& info) {
    if (info.shape.size() == 2) t = RandomBlocks(type, info.shape[0], info.shape[1], seed++);
    if (info.Is(Part::kQ)) t.interleaved_heads = 4;
  });
  return model;
}

mx::array Dequantise(const MlxWeight& w) {
  if (w.bits == 0) return *w.values;
  return mx::dequantize(*w.values, mx::astype(*w.scales, mx::float32), mx::astype(*w.biases, mx::float32),
                        w.group, w.bits, "affine", std::nullopt, mx::float32);
}

// What the device holds is the file, bit for bit, norms and biases rounded to the activations' type; and
// takes the memory that was predicted.
void ExpectSameBits(const ModelSpec& spec, Weights<TensorView>& tensors, const MlxWeightOptions& options) {
  Weights<MlxWeight> weights = LoadWeights(spec, tensors, options);
  size_t bytes = 0, predicted = 0;
  std::vector<const TensorView*> views;
  ForEachWeight(spec, tensors, [&](TensorView& t, const WeightInfo& info) {
    views.push_back(&t);
    predicted += BytesOf(t, info, options);
  });
  size_t next = 0;
  ForEachWeight(spec, weights, [&](MlxWeight& w, const WeightInfo& info) {
    for (const auto& part : {w.values, w.scales, w.biases})
      if (part) bytes += part->nbytes();
    std::vector<float> want = views[next++]->ReadAll();
    if (info.shape.size() == 1)
      for (float& x : want) x = ReadFloats(mx::astype(mx::array(x), options.activations))[0];
    const std::vector<float> got = ReadFloats(Dequantise(w));
    ASSERT_EQ(got.size(), want.size()) << info.Name();
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i] + 0.f), std::bit_cast<uint32_t>(want[i] + 0.f))
          << info.Name() << " " << i;
  });
  EXPECT_EQ(bytes, predicted);
}

class QuantisedWeights : public ::testing::TestWithParam<std::tuple<DType, DType>> {};

TEST_P(QuantisedWeights, AreTheFilesBitForBit) {
  const auto [type, activations] = GetParam();
  test::TinyModel model = QuantisedModel(type);
  ExpectSameBits(model.spec, model.tensors, {ToMlx(activations), 0});
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<DType, DType>>& types) {
  return std::string(Name(std::get<0>(types.param))) + "_" + Name(std::get<1>(types.param));
}
INSTANTIATE_TEST_SUITE_P(Small, QuantisedWeights,
                         ::testing::Combine(::testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                                              DType::kQ5_1, DType::kQ8_0),
                                            ::testing::Values(DType::kF32, DType::kF16)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Large, QuantisedWeights,
                         ::testing::Combine(::testing::Values(DType::kQ4K, DType::kQ5K, DType::kQ6K),
                                            ::testing::Values(DType::kF32)),
                         NameOf);

TEST(MlxWeights, WhatMlxQuantisedIsTheFileBitForBit) {
  for (const char* name : {"llama-base-mlx-mixed", "llama-base-mlx-q4-bf16"}) {
    ModelSource source = OpenModel(std::string(PD_TEST_DATA "/models/") + name);
    ExpectSameBits(source.spec, source.tensors, {mx::float32, 0});
    MlxWeightChanges changes;
    const auto weights = LoadWeights(source.spec, source.tensors, {mx::float32, 0}, &changes);
    EXPECT_TRUE(changes.rounded.empty()) << name;
    EXPECT_EQ(MlpOf(weights.layers[0]).down.weight.bits, 4);
    EXPECT_EQ(weights.embed.bits, std::string(name).ends_with("mixed") ? 8 : 4);
    EXPECT_EQ(weights.embed.group, std::string(name).ends_with("mixed") ? 64 : 32);
  }
}

// Products of two scales have more digits than f16: what is lost is small, and told.
TEST(MlxWeights, RoundingOfLargeBlocksIsReported) {
  for (DType type : {DType::kQ4K, DType::kQ5K}) {
    test::TinyModel model = QuantisedModel(type);
    MlxWeightChanges changes;
    LoadWeights(model.spec, model.tensors, {mx::float16, 0}, &changes);
    ASSERT_EQ(changes.rounded.size(), 1u);
    const auto& change = changes.rounded.at(type);
    EXPECT_EQ(change.matrices, 9);
    EXPECT_GT(change.rounding, 1e-5f);
    EXPECT_TRUE(changes.plain.empty());
    LoadWeights(model.spec, model.tensors, {mx::float32, 0}, &(changes = {}));
    EXPECT_TRUE(changes.rounded.empty()) << "in f32 nothing is lost";
  }
}

TEST(MlxWeights, OtherTypesTakeSixteenBitsOrWhatWasAskedFor) {
  test::TinyModel model = QuantisedModel(DType::kQ6K);
  MlxWeightChanges changes;
  auto weights = LoadWeights(model.spec, model.tensors, {mx::float16, 0}, &changes);
  EXPECT_EQ(AttentionOf(weights.layers[0]).o.weight.bits, 0);
  const auto plain = changes.plain.at(DType::kQ6K);
  EXPECT_EQ(plain.matrices, 9);
  EXPECT_EQ(plain.device_bytes * 210, plain.file_bytes * 512);
  weights = LoadWeights(model.spec, model.tensors, {mx::float16, 8}, &(changes = {}));
  EXPECT_EQ(AttentionOf(weights.layers[0]).o.weight.bits, 8);
  EXPECT_EQ(changes.requantised.matrices, 9);
  EXPECT_EQ(changes.requantised.file_bytes, plain.file_bytes);
  EXPECT_TRUE(changes.plain.empty());
}

TEST(MlxWeights, StackedPartsShareMemory) {
  test::TinyModel model = QuantisedModel(DType::kQ4_0);
  const auto weights = LoadWeights(model.spec, model.tensors, {mx::float32, 0});
  const auto& attention = AttentionOf(weights.layers[0]);
  const auto& mlp = MlpOf(weights.layers[0]);
  const auto& stack = attention.q.weight.stack;
  ASSERT_TRUE(stack && stack == attention.k->weight.stack && stack == attention.v->weight.stack);
  EXPECT_EQ(attention.v->weight.stack_row,
            AttentionOf(model.spec.layers[0]).q_width() + AttentionOf(model.spec.layers[0]).kv_width());
  EXPECT_EQ(attention.v->weight.values->data_shared_ptr(), stack->weight.values->data_shared_ptr());
  ASSERT_TRUE(mlp.gate->weight.stack && mlp.gate->weight.stack == mlp.up.weight.stack);
  EXPECT_FALSE(attention.o.weight.stack);
}

TEST(MlxWeights, MixedFormatsAreNotStacked) {
  test::TinyModel model = QuantisedModel(DType::kQ4_0);
  TensorView& v = AttentionOf(model.tensors.layers[0]).v->weight;
  v = RandomBlocks(DType::kQ8_0, v.rows(), v.columns(), 9);
  const auto weights = LoadWeights(model.spec, model.tensors, {mx::float32, 0});
  EXPECT_FALSE(AttentionOf(weights.layers[0]).q.weight.stack);
  EXPECT_EQ(AttentionOf(weights.layers[0]).v->weight.bits, 8);
}

TEST(MlxWeights, PlainMatricesQuantiseOnRequest) {
  test::TinyModel model = QuantisedModel(DType::kQ4_0);
  TensorView& down =
      MlpOf(model.tensors.layers[0]).down.weight;  // [64, 96]: columns are no multiple of the group
  TensorView& o = AttentionOf(model.tensors.layers[0]).o.weight;  // [64, 64]
  const std::vector<float> plain = o.ReadAll();
  auto values = std::make_shared<std::vector<float>>(plain);
  for (TensorView* t : {&o, &down}) {
    auto floats = std::make_shared<std::vector<float>>(t->ReadAll());
    *t = {t->name, DType::kF32, t->shape, std::as_bytes(std::span(*floats)), floats, 0};
  }
  for (int bits : {4, 8}) {
    const auto weights = LoadWeights(model.spec, model.tensors, {mx::float32, bits});
    EXPECT_EQ(AttentionOf(weights.layers[0]).o.weight.bits, bits);
    EXPECT_EQ(MlpOf(weights.layers[0]).down.weight.bits, 0);
    EXPECT_EQ(MlpOf(weights.layers[0]).gate->weight.bits, 4) << "what a file quantised stays as it is";
    // A group's step is about its range over 2^bits - 1 (MLX bends it so that the larger end is exact).
    const auto got = ReadFloats(Dequantise(AttentionOf(weights.layers[0]).o.weight));
    for (size_t group = 0; group < plain.size(); group += 64) {
      const auto [low, high] =
          std::minmax_element(plain.begin() + ptrdiff_t(group), plain.begin() + ptrdiff_t(group) + 64);
      for (size_t i = group; i < group + 64; ++i)
        EXPECT_LE(std::abs(got[i] - plain[i]), (*high - *low) / float((1 << bits) - 1) * 1.1f)
            << bits << " bits";
    }
  }
}

TEST(MlxWeights, ScalesBeyondF16AreRefused) {
  test::TinyModel model = QuantisedModel(DType::kQ8_0);
  TensorView& o = AttentionOf(model.tensors.layers[0]).o.weight;
  auto bytes = std::make_shared<std::vector<std::byte>>(o.bytes.begin(), o.bytes.end());
  const F16 large = ToF16(60000);
  std::memcpy(bytes->data(), &large, 2);
  o.bytes = *bytes, o.owner = bytes;
  EXPECT_NO_THROW(LoadWeights(model.spec, model.tensors, {mx::float32, 0}));
  try {
    LoadWeights(model.spec, model.tensors, {mx::float16, 0});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("blocks: row 0"), std::string::npos) << e.what();
  }
}

TEST(MlxWeights, RowsOfATable) {
  test::TinyModel model = QuantisedModel(DType::kQ4_1);
  const auto weights = LoadWeights(model.spec, model.tensors, {mx::float32, 0});
  const int32_t ids[] = {95, 0, 7, 7};
  const auto got = ReadFloats(TakeRows(weights.embed, Vector(ids), mx::float32));
  std::vector<float> row(64);
  for (size_t i = 0; i < 4; ++i) {
    model.tensors.embed.ReadRow(ids[i], row);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), got.begin() + ptrdiff_t(i * 64))) << ids[i];
  }
}

}  // namespace
}  // namespace pd
