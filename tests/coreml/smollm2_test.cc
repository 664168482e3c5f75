// The default model's packages, executed in double precision, against the reference on the same weights: what
// an fp16 program and each weight format keep of a real model.
#include <gtest/gtest.h>

#include <cstdlib>

#include "coreml/device/coreml_prefill.h"
#include "coreml/export/export.h"
#include "coreml/export/sample_pass.h"
#include "device/prefill_via.h"
#include "reference/reference_ops.h"
#include "tests/coreml/double_predictor.h"
#include "tests/coreml/example.h"
#include "tests/temp_folder.h"
#include "text/tokenizer.h"

namespace pd {
namespace {

constexpr int kChunk = 64;

struct LayerKv {
  std::vector<float> keys, values;
};

std::vector<LayerKv> Prefill(PrefillDevice& device, const ModelSpec& spec, std::span<const TokenId> ids) {
  const KvSegment segment = device.Begin(int(ids.size()), {}, {})->Run(ids, 0);
  std::vector<LayerKv> layers(spec.layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    std::vector<float> head(size_t(AttentionOf(spec.layers[l]).head_dim));
    for (int t = 0; t < segment.count; ++t)
      for (int h = 0; h < AttentionOf(spec.layers[l]).kv_heads; ++h) {
        ReadHead(segment.kv(l), segment.kv(l).k, h, t, head);
        layers[l].keys.insert(layers[l].keys.end(), head.begin(), head.end());
        ReadHead(segment.kv(l), segment.kv(l).v, h, t, head);
        layers[l].values.insert(layers[l].values.end(), head.begin(), head.end());
      }
  }
  return layers;
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("PD_TEST_MODEL");
    ASSERT_TRUE(path && std::filesystem::exists(path))
        << "PD_TEST_MODEL names no default model; ./dev test fetches it";
    model_ = OpenModel(path);
    const auto tokenizer = Tokenizer::FromGguf(*model_.gguf);
    ids_ = tokenizer->Encode(
        "The old lighthouse stood at the end of a long pier, and every evening at six the keeper climbed its "
        "217 "
        "steps with a lamp, a flask of tea and the newspaper of the day before, which he read twice.");
    ASSERT_LE(int(ids_.size()), kChunk);
    sample_ = tokenizer->Encode(
        "def area(radius):\n    return 3.14159 * radius ** 2\n\nRain fell on the fields for three days. On "
        "the fourth "
        "the farmer opened the gate, counted 28 sheep and 5 goats, and led them up to the dry pasture by the "
        "chapel.");
  }

  // The worst layer's cosine and rms ratio against the reference.
  void ExpectAtLeast(WeightFormat format, double cosine, double rms) {
    const test::TempFolder folder;
    ExportOptions options;
    options.weights = format;
    options.chunks = {kChunk};
    options.histories = {0};
    options.sample = sample_;
    ExportBundle(model_, folder / "bundle", options, [](const ExportProgress&) {});
    const auto device =
        OpenCoreMlPrefill(model_, ReadBundle(folder / "bundle"), test::DoublePredictors(), {});
    const std::vector<LayerKv> got = Prefill(*device, model_.spec, ids_), want = Reference();
    double worst_cosine = 1, worst_rms = 0;
    for (size_t l = 0; l < want.size(); ++l)
      for (const auto& [a, b] : {std::pair(&got[l].keys, &want[l].keys), {&got[l].values, &want[l].values}}) {
        worst_cosine = std::min(worst_cosine, Cosine(*a, *b));
        worst_rms = std::max(worst_rms, std::abs(RmsRatio(*a, *b) - 1));
      }
    RecordProperty("worst_cosine", std::to_string(worst_cosine));
    EXPECT_GE(worst_cosine, cosine);
    EXPECT_LE(worst_rms, rms);
  }

  std::vector<LayerKv> Reference() {
    PrefillVia reference(OpenReferenceDevice(LoadReferenceModel(model_.spec, model_.tensors)));
    return Prefill(reference, model_.spec, ids_);
  }

  ModelSource model_;
  std::vector<TokenId> ids_, sample_;  // sample_: what the export measures on, other text than what is tested
};

TEST_F(SmolLm2, Fp16KeepsEveryLayer) { ExpectAtLeast(WeightFormat::kFp16, 0.9999, 0.001); }
TEST_F(SmolLm2, Int8KeepsEveryLayer) { ExpectAtLeast(WeightFormat::kInt8, 0.999, 0.01); }

}  // namespace
}  // namespace pd
