// The default model prefilled by its exported fp16 programs, run by our interpreter, and decoded on the cpu:
// the product's path, against transformers' keys and values and against the cpu alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/files.h"
#include "base/json.h"
#include "coreml/export/export.h"
#include "coreml/export/sample_pass.h"
#include "model/rope.h"
#include "open/open.h"
#include "serving/generate.h"
#include "tests/coreml/example.h"
#include "tests/error_table.h"
#include "tests/golden/golden_file.h"
#include "tests/temp_folder.h"
#include "text/tokenizer.h"

namespace pd {
namespace {

std::span<const float> Row(const Logits& logits, int row) {
  return std::span(logits.values).subspan(size_t(row) * size_t(logits.vocab), size_t(logits.vocab));
}

class SmolLm2Text : public testing::Test {
 protected:
  static constexpr int kChunk = 128, kHistory = 512;

  static void SetUpTestSuite() {
    const char* path = std::getenv("PD_TEST_MODEL");
    ASSERT_TRUE(path && std::filesystem::exists(path))
        << "PD_TEST_MODEL names no default model; ./dev test fetches it";
    world_ = std::make_unique<World>();
    world_->model = OpenModel(path);
    ExportOptions options;
    options.chunks = {kChunk};
    options.histories = {0, kHistory};
    ExportBundle(world_->model, world_->folder / "bundle", options, [](const ExportProgress&) {});
    world_->devices = Open();
    world_->text =
        test::GoldenFile(PD_TEST_DATA "/smollm2/golden.safetensors").Read<TokenId>("perplexity.ids");
  }
  static void TearDownTestSuite() { world_.reset(); }

  static Devices Open() {
    OpenOptions open;
    open.bundle = world_->folder / "bundle";
    return OpenDevices(world_->model, "coreml", "cpu", open);
  }
  static const ModelSpec& spec() { return world_->model.spec; }
  static DecodeDevice& cpu() { return *world_->devices.decode; }
  static PrefillDevice& ane() { return *world_->devices.prefill[0]; }
  static const std::vector<TokenId>& text() { return world_->text; }

  // Logits of ids[from, end) after the first `from` tokens were prefilled by `device`, or by the cpu itself.
  static Logits After(PrefillDevice* device, std::span<const TokenId> ids, int from, int chunk = kChunk) {
    const Variant variant{FixRope(spec(), int(ids.size()))};
    const SlotId slot = cpu().Open(int(ids.size()), variant);
    if (device) {
      const auto session = device->Begin(int(ids.size()), variant, {});
      for (int at = 0; at < from; at += chunk)
        cpu().Import(slot, session->Run(ids.subspan(size_t(at), size_t(std::min(chunk, from - at))), at));
    }
    const int first = device ? from : 0;
    const std::span<const TokenId> rest = ids.subspan(size_t(first));
    std::vector<int32_t> pos(rest.size()), wanted(ids.size() - size_t(from));
    std::iota(pos.begin(), pos.end(), first);
    std::iota(wanted.begin(), wanted.end(), from - first);
    Logits logits = cpu().RunLogits({rest, pos, std::vector<SlotId>(rest.size(), slot), wanted});
    cpu().Close(slot);
    return logits;
  }

  struct World {
    test::TempFolder folder;
    ModelSource model;
    Devices devices;
    std::vector<TokenId> text;
  };
  static inline std::unique_ptr<World> world_;
};

TEST_F(SmolLm2Text, KeysAndValuesAreThoseOfTransformers) {
  const test::GoldenFile golden(PD_TEST_DATA "/smollm2/golden.safetensors");
  const auto ids = golden.Read<TokenId>("kv.ids");
  const KvSegment kv = ane().Begin(int(ids.size()), {}, {})->Run(ids, 0);
  EXPECT_EQ(ane().Info().name, "ane-reference");
  for (size_t layer : {0, 15, 29})
    for (const bool value : {false, true}) {
      std::vector<float> all, head(64);
      for (int h = 0; h < 3; ++h)
        for (int t = 0; t < int(ids.size()); ++t) {
          ReadHead(kv.kv(layer), value ? kv.kv(layer).v : kv.kv(layer).k, h, t, head);
          all.insert(all.end(), head.begin(), head.end());
        }
      const std::string name = "kv.layer." + std::to_string(layer) + (value ? ".v" : ".k");
      const auto want = golden.Read<float>(name);
      EXPECT_GE(Cosine(all, want), 0.9999) << name;
      EXPECT_NEAR(RmsRatio(all, want), 1, 0.001) << name;
    }
}

// Prompts of many kinds, each with 48 tokens of its text: the choice at every one of them is that of the cpu
// alone, or between logits that the cpu's own error cannot tell apart, and that seldom.
TEST_F(SmolLm2Text, TextIsThatOfTheCpuAlone) {
  constexpr int kForced = 48;
  const test::GoldenFile golden(PD_TEST_DATA "/smollm2/golden.safetensors");
  std::vector<std::vector<TokenId>> texts;
  const Json list = ParseJson(ReadTextFile(PD_TEST_DATA "/smollm2/prompts.json"), "prompts.json");
  for (const Json& prompt : list["prompts"])
    texts.push_back(golden.Read<TokenId>(prompt["name"].get<std::string>() + ".ids"));
  for (size_t at = 0; texts.size() < 20; at += 40)
    texts.emplace_back(text().begin() + std::ptrdiff_t(at),
                       text().begin() + std::ptrdiff_t(at + 60 + 9 * texts.size()));
  int positions = 0, disagreements = 0;
  for (const std::vector<TokenId>& ids : texts) {
    const int from = std::max(1, int(ids.size()) - kForced);
    const Logits split = After(&ane(), ids, from), alone = After(nullptr, ids, from);
    ASSERT_EQ(split.rows, alone.rows);
    for (int t = 0; t < alone.rows; ++t, ++positions) {
      const auto got = Row(split, t), want = Row(alone, t);
      const auto choice = std::max_element(got.begin(), got.end()) - got.begin();
      const auto best = std::max_element(want.begin(), want.end()) - want.begin();
      if (choice == best) continue;
      ++disagreements;
      double square = 0;
      for (float x : want) square += double(x) * double(x);
      const double size = std::sqrt(square / double(want.size()));
      EXPECT_LE(want[size_t(best)] - want[size_t(choice)], 2 * test::LogitError("cpu_quantised") * size);
    }
  }
  std::printf("%d of %d positions differ\n", disagreements, positions);
  EXPECT_GE(positions, 20 * kForced - 200);
  EXPECT_LE(disagreements, 0.02 * positions);
}

// Any length and any prefix give what one call gives.
TEST_F(SmolLm2Text, ChunksAndPrefixesAgree) {
  const std::span<const TokenId> ids = std::span(text()).first(300);
  const auto collect = [&](const KvSegment& segment) {
    std::vector<float> all, head(64);
    for (size_t i = 0; i < segment.layers.size(); ++i)
      for (int t = 0; t < segment.count; ++t)
        for (int h = 0; h < 3; ++h)
          for (const std::byte* base : {segment.kv(i).k, segment.kv(i).v}) {
            ReadHead(segment.kv(i), base, h, t, head);
            all.insert(all.end(), head.begin(), head.end());
          }
    return all;
  };
  const KvSegment whole = ane().Begin(300, {}, {})->Run(ids, 0);
  for (int at : {1, 2, 63, 64, 65, 127, 128, 129, 172, 200, 256, 299}) {
    const int count = std::min(kChunk, 300 - at);
    const KvSegment prefix = Slice(whole, 0, at), rest = Slice(whole, at, count);
    const auto session = ane().Begin(300, {}, {&prefix, 1});
    const KvSegment got = session->Run(ids.subspan(size_t(at), size_t(count)), at);
    EXPECT_LT(test::RelativeError(collect(got), collect(rest)), test::LogitError("coreml_fp16")) << at;
  }
}

// What the first chunk says is known after the third.
TEST_F(SmolLm2Text, FactsOutliveTheirChunk) {
  const auto tokenizer = Tokenizer::FromGguf(*world_->model.gguf);
  std::vector<TokenId> ids =
      tokenizer->Encode("The password of the old safe is \"pelican\". Keep it in mind.\n\n");
  ids.insert(ids.end(), text().begin(), text().begin() + 3 * kChunk);
  const auto question = tokenizer->Encode("\n\nThe password of the old safe is \"");
  ids.insert(ids.end(), question.begin(), question.end());
  Devices opened = Open();  // of the engine's own
  EngineDevices devices;
  devices.prefill = std::move(opened.prefill);
  devices.decode = std::move(opened.decode);
  Engine engine(spec(), std::move(devices));
  const RequestResult result =
      Generate(engine, {.prompt = ids, .max_tokens = 4, .prefill_chunk = kChunk}, {});
  EXPECT_EQ(result.stats.prefill_tokens, int(ids.size()) - 1);
  EXPECT_TRUE(tokenizer->Decode(result.tokens).starts_with("pelican")) << tokenizer->Decode(result.tokens);
}

}  // namespace
}  // namespace pd
