// The default model prefilled by the runtime over stand-ins of Core ML, decoded on the cpu and on mlx: the
// text of the path by our interpreter, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>

#include "coreml/device/coreml_prefill.h"
#include "coreml/export/export.h"
#include "coreml/runtime/runtime.h"
#include "open/open.h"
#include "serving/generate.h"
#include "tests/coreml/example.h"
#include "tests/coreml/standin/backend.h"
#include "tests/golden/golden_file.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

using standin::Director;

TEST(SmolLm2StandIn, TextIsThatOfTheInterpreter) {
  const char* path = std::getenv("PD_TEST_MODEL");
  ASSERT_TRUE(path && std::filesystem::exists(path))
      << "PD_TEST_MODEL names no default model; ./dev test fetches it";
  const test::TempFolder folder;
  ModelSource model = OpenModel(path);
  ExportOptions options;
  options.chunks = {128};
  options.histories = {0, 128};
  ExportBundle(model, folder / "bundle", options, [](const ExportProgress&) {});
  const auto ids =
      test::GoldenFile(PD_TEST_DATA "/smollm2/golden.safetensors").Read<TokenId>("perplexity.ids");
  const std::span<const TokenId> prompt = std::span(ids).first(230);

  RuntimeOptions runtime_options;
  runtime_options.cache_folder = folder / "cache";
  runtime_options.engagement.runs = 1;
  runtime_options.milliseconds = [] { return Director::The().Milliseconds(); };
  const CoreMlRuntime runtime(MakeCoreMl(), ReadBundle(folder / "bundle"), runtime_options);
  std::vector<std::string> decoders = {"cpu"};
  for (const std::string& name : DeviceNames())
    if (name == "mlx") decoders.push_back(name);
  for (const std::string& decoder : decoders) {
    std::vector<std::vector<TokenId>> texts;
    std::vector<std::vector<float>> logprobs;
    for (const bool stood_in : {false, true}) {
      OpenOptions open;
      open.bundle = folder / "bundle";
      if (stood_in) open.predictors = runtime.Factory();
      Devices opened = OpenDevices(model, "coreml", decoder, open);
      EngineDevices devices;
      devices.prefill = std::move(opened.prefill);
      devices.decode = std::move(opened.decode);
      EngineOptions engine_options;
      engine_options.leave_lane = opened.leave_thread;
      Engine engine(model.spec, std::move(devices), std::move(engine_options));
      std::vector<float>& likely = logprobs.emplace_back();
      Request request;
      request.prompt.assign(prompt.begin(), prompt.end());
      request.max_tokens = 12;
      request.prefill_chunk = 128;
      const RequestResult result = Generate(engine, std::move(request), [&](const Sampled& sampled) {
        likely.push_back(sampled.logprob);
        return true;
      });
      EXPECT_EQ(result.stats.prefill_tokens, int(prompt.size()) - 1);
      EXPECT_EQ(result.stats.fallback, "");
      texts.push_back(result.tokens);
    }
    EXPECT_EQ(texts[0], texts[1]) << decoder;
    EXPECT_EQ(logprobs[0], logprobs[1]) << decoder;
  }
  const RuntimeReport report = runtime.Report();
  ASSERT_EQ(report.functions.size(), 2u);
  EXPECT_EQ(report.functions[0].predictions, decoders.size());
  EXPECT_EQ(report.copies, 0u);
  Director::The().Settle();
}

}  // namespace
}  // namespace pd
