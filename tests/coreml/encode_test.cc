// Weights as they are stored: what each format keeps of them.
#include "coreml/export/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "coreml/export/sample_pass.h"
#include "tests/coreml/example.h"
#include "tests/coreml/sources.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

std::vector<float> Normal(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

double SquaredError(const std::vector<float>& values, const std::vector<float>& importance,
                    const std::array<float, kTableSize>& table, const std::vector<uint8_t>& indices) {
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double d = double(table[indices[i]]) - double(values[i]);
    error += d * d * double(importance[i % importance.size()]);
  }
  return error;
}

TEST(TableMaker, EachValueGetsItsNearestEntry) {
  const std::vector<float> values = Normal(64 * 32, 1), importance(64, 1.f);
  std::vector<uint8_t> indices(values.size());
  const auto table = TableMaker().Make(values, importance, indices);
  EXPECT_TRUE(std::is_sorted(table.begin(), table.end()));
  for (size_t i = 0; i < values.size(); ++i)
    for (float entry : table)
      EXPECT_LE(std::abs(table[indices[i]] - values[i]), std::abs(entry - values[i]) + 1e-9f);
}

// Max's quantiser of 16 levels for a normal density has a mean squared error of 0.009497 variances.
TEST(TableMaker, IsAsGoodAsTheBestQuantiser) {
  const std::vector<float> values = Normal(400'000, 2), importance(100, 1.f);
  std::vector<uint8_t> indices(values.size());
  const auto table = TableMaker().Make(values, importance, indices);
  double variance = 0;
  for (float v : values) variance += double(v) * double(v);
  const double error = SquaredError(values, importance, table, indices) / variance;
  EXPECT_LT(error, 0.0098);
  EXPECT_GT(error, 0.0092);
}

TEST(TableMaker, SixteenValuesAreKeptExactly) {
  std::vector<float> values;
  for (int i = 0; i < 640; ++i) values.push_back(float(i % 16 - 8) / 8);
  std::vector<uint8_t> indices(values.size());
  const auto table = TableMaker().Make(values, std::vector<float>(64, 1.f), indices);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(table[indices[i]], values[i]);
}

TEST(TableMaker, ImportantColumnsGetTheSmallerError) {
  const std::vector<float> values = Normal(64 * 512, 3);
  std::vector<float> importance(64, 1.f), alike(64, 1.f);
  // What matters lies in the tails: columns whose values are large.
  std::vector<float> shaped = values;
  for (size_t i = 0; i < shaped.size(); ++i)
    if (i % 64 < 8) shaped[i] *= 4, importance[i % 64] = 100;
  std::vector<uint8_t> indices(values.size()), plain(values.size());
  const auto table = TableMaker().Make(shaped, importance, indices);
  const auto plain_table = TableMaker().Make(shaped, alike, plain);
  EXPECT_LT(SquaredError(shaped, importance, table, indices),
            0.8 * SquaredError(shaped, importance, plain_table, plain));
}

TEST(TableMaker, ConstantsAndExtremes) {
  std::vector<float> values(64, 0.25f);
  std::vector<uint8_t> indices(64, 9);
  EXPECT_EQ(TableMaker().Make(values, std::vector<float>(64, 1.f), indices)[indices[0]], 0.25f);
  values[7] = 1000;  // an outlier does not spoil the rest
  const auto table = TableMaker().Make(values, std::vector<float>(64, 1.f), indices);
  EXPECT_EQ(table[indices[0]], 0.25f);
  EXPECT_EQ(table[indices[7]], 1000.f);
}

// Writes one matrix and reads it back as programs would.
std::vector<float> ThroughFile(const std::vector<float>& values, int64_t out, int64_t in, WeightFormat format,
                               DType type = DType::kF32, const Importance& importance = {}) {
  const test::TempFolder folder;
  ModelSpec spec = test::MixedSpec();
  const WeightInfo info{.part = Part::kK, .layer = 0, .shape = {out, in}, .role = Role::kLinear};
  std::vector<std::byte> stored(values.size() * size_t(Info(type).block_bytes));
  StoreRow(type, values, stored.data());
  const TensorView tensor{"k", type, {out, in}, stored, nullptr};
  BlobLayout layout;
  const mil::EncodedWeight planned = PlanWeight(spec, info, format, layout);
  BlobWriter writer(folder / "weight.bin");
  WeightEncoder(writer, importance).Write(planned, tensor, 1);
  writer.Finish();
  EXPECT_EQ(std::filesystem::file_size(folder / "weight.bin"), layout.size());
  const BlobFile file(folder / "weight.bin");
  Weights<mil::EncodedWeight> encoded;
  Weights<TensorView> tensors;
  MakeRoom(spec, encoded);
  ForEachWeight(spec, encoded, [&](mil::EncodedWeight& w, const WeightInfo& i) {
    w = i.Name() == info.Name() ? planned : mil::EncodedWeight{i, {}};
  });
  MakeRoom(spec, tensors);
  const Weights<StreamedWeight> streamed =
      StreamEncoded(spec, tensors, {1, std::vector<mil::LayerScales>(spec.layers.size())}, encoded,
                    std::vector<const BlobFile*>(spec.layers.size(), &file));
  std::vector<float> result(values.size());
  for (int64_t r = 0; r < out; ++r)
    AttentionOf(streamed.layers[0]).k->weight.read(r, std::span(result).subspan(size_t(r * in), size_t(in)));
  return result;
}

TEST(Encode, HalvesAreRoundedOnce) {
  const std::vector<float> values = Normal(6 * 40, 4);
  for (DType type : {DType::kF32, DType::kF16}) {
    const std::vector<float> got = ThroughFile(values, 6, 40, WeightFormat::kFp16, type);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], ToFloat(ToF16(values[i])));
  }
}

TEST(Encode, Int8IsWithinHalfAStepOfEachChannel) {
  std::vector<float> values = Normal(6 * 40, 5);
  for (size_t i = 0; i < 40; ++i) values[i] = 0;  // a silent channel
  for (size_t i = 40; i < 80; ++i) values[i] *= 1000;
  const std::vector<float> got = ThroughFile(values, 6, 40, WeightFormat::kInt8);
  for (size_t r = 0; r < 6; ++r) {
    float most = 0;
    for (size_t i = 0; i < 40; ++i) most = std::max(most, std::abs(values[r * 40 + i]));
    for (size_t i = 0; i < 40; ++i)
      EXPECT_LE(std::abs(got[r * 40 + i] - values[r * 40 + i]), most / 127 * 0.502f + 1e-9f);
  }
}

TEST(Encode, Int8FitsTheColumnsThatMatter) {
  constexpr size_t kRows = 64, kColumns = 300;
  const std::vector<float> values = Normal(kRows * kColumns, 8);
  std::vector<float> importance(kColumns, 1.f);
  for (size_t i = 0; i < kColumns; i += 60) importance[i] = 1000;
  const auto error = [&](const Importance& known) {
    const std::vector<float> got =
        ThroughFile(values, kRows, kColumns, WeightFormat::kInt8, DType::kF32, known);
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i)
      sum += double(importance[i % kColumns]) * std::pow(double(got[i]) - double(values[i]), 2);
    return sum;
  };
  EXPECT_LT(error({{"layers.0.k", importance}}), 0.5 * error({}));
}

TEST(Encode, OddSizesAndSplitMatricesComeBack) {
  // 45 x 77: no group of channels is even, nibbles cross rows.
  const std::vector<float> odd = Normal(45 * 77, 6);
  const std::vector<float> lut = ThroughFile(odd, 45, 77, WeightFormat::kLut4);
  double error = 0, norm = 0;
  for (size_t i = 0; i < odd.size(); ++i) {
    error += double(lut[i] - odd[i]) * double(lut[i] - odd[i]);
    norm += double(odd[i]) * double(odd[i]);
  }
  EXPECT_LT(error / norm, 0.0098);
  const std::vector<float> deep = Normal(3 * 20000, 7);
  const std::vector<float> got = ThroughFile(deep, 3, 20000, WeightFormat::kFp16);
  for (size_t i = 0; i < deep.size(); ++i) ASSERT_EQ(got[i], ToFloat(ToF16(deep[i])));
}

TEST(Encode, SplitsAtTheNotchAndAboveTheDepth) {
  EXPECT_EQ(mil::SplitInputs(2048, 2048, true), (std::vector<int64_t>{2048}));
  // The shapes that were measured slow: 8192 x 2048 streams exactly 2 MiB a core.
  for (const auto& [out, in] :
       {std::pair{8192, 2048}, {8192, 3072}, {4096, 4096}, {12288, 4096}, {14336, 4096}}) {
    EXPECT_TRUE(mil::InDmaNotch(out, in)) << out;
    const auto parts = mil::SplitInputs(out, in, true);
    EXPECT_GE(parts.size(), 2u);
    EXPECT_LE(parts.size(), 3u);
    int64_t sum = 0;
    for (int64_t p : parts) {
      EXPECT_FALSE(mil::InDmaNotch(out, p)) << out << " x " << p;
      EXPECT_EQ(p % 32, 0);
      sum += p;
    }
    EXPECT_EQ(sum, in);
    EXPECT_EQ(mil::SplitInputs(out, in, false).size(), 1u);  // no notch for compressed weights
  }
  EXPECT_FALSE(mil::InDmaNotch(1024, 1024));
  EXPECT_FALSE(mil::InDmaNotch(3072, 1024));
  EXPECT_EQ(mil::SplitInputs(512, 17408, false), (std::vector<int64_t>{8704, 8704}));
}

}  // namespace
}  // namespace pd
