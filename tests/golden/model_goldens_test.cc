// Every device against Hugging Face transformers, on tiny random models of each family
// (tests/data/models.json).
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/files.h"
#include "base/json.h"
#include "formats/model_source.h"
#include "model/rope.h"
#include "tests/device/test_devices.h"
#include "tests/error_table.h"
#include "tests/golden/golden_file.h"

namespace pd::test {
namespace {

std::filesystem::path Data(const std::string& name) {
  return std::filesystem::path(PD_TEST_DATA) / "models" / name;
}

struct GoldenCase {
  std::string model, golden, covers;
  size_t prompts;
};
void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.covers; }

std::vector<GoldenCase> Cases() {
  std::vector<GoldenCase> cases;
  for (const Json& entry : ParseJson(ReadTextFile(Data("models.json")), "models.json"))
    cases.push_back({entry["model"], entry["golden"], entry["covers"], entry["prompt_lengths"].size()});
  return cases;
}

class ModelGoldens : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(ModelGoldens, LogitsKeysAndValues) {
  const GoldenCase& c = GetParam();
  const ModelSource source = OpenModel(Data(c.model));
  TinyModel model{source.spec, source.tensors};
  // A dynamic-NTK golden runs past what its config stretches the context to, to see the formula, not the
  // limit.
  model.spec.max_context = std::max(model.spec.max_context, 256);
  const GoldenFile golden(Data(c.golden));
  for (const TestDevice& test_device : AllDevices()) {
    SCOPED_TRACE(c.covers + " on " + test_device.name);
    const double bound = LogitErrorOf(test_device, model);
    const auto device = test_device.load(model)();
    for (size_t i = 0; i < c.prompts; ++i) {
      const std::string prompt = "prompt." + std::to_string(i) + ".";
      const auto ids = golden.Read<TokenId>(prompt + "ids");
      const int count = int(ids.size());
      const SlotId slot = device->Open(count, {FixRope(model.spec, count)});
      std::vector<int32_t> pos(ids.size());
      std::iota(pos.begin(), pos.end(), 0);
      const Logits logits = device->RunLogits({ids, pos, std::vector<SlotId>(ids.size(), slot), pos});
      EXPECT_LE(RelativeError(logits.values, golden.Read<float>(prompt + "logits")), bound)
          << count << " tokens";

      const KvSegment kv = device->Export(slot, 0, count);
      for (size_t layer = 0; layer < model.spec.layers.size(); ++layer) {
        const std::string name = prompt + "layer." + std::to_string(layer) + ".";
        if (!golden.Has(name + "k")) continue;
        const AttentionSpec& a = AttentionOf(model.spec.layers[layer]);
        std::vector<float> k, v, head(size_t(a.head_dim));  // [K, T, D], as transformers caches them
        for (int h = 0; h < a.kv_heads; ++h)
          for (int t = 0; t < count; ++t)
            for (auto [base, out] : {std::pair(kv.kv(layer).k, &k), std::pair(kv.kv(layer).v, &v)}) {
              ReadHead(kv.kv(layer), base, h, t, head);
              out->insert(out->end(), head.begin(), head.end());
            }
        EXPECT_LE(RelativeError(k, golden.Read<float>(name + "k")), bound) << "keys of layer " << layer;
        EXPECT_LE(RelativeError(v, golden.Read<float>(name + "v")), bound) << "values of layer " << layer;
      }
      device->Close(slot);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ModelGoldens, ::testing::ValuesIn(Cases()), [](const auto& test) {
  std::string name;
  for (char ch : test.param.model) name += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return name;
});

}  // namespace
}  // namespace pd::test
