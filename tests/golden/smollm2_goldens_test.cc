#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "device/prefill_via.h"
#include "tests/device/test_devices.h"
#include "tests/device_checks.h"
#include "tests/error_table.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/smollm2_checks.h"

namespace pd::test {
namespace {

TEST(SmolLM2, TeacherForced) { CheckPrompts({"capital", "sum", "chat"}); }

TEST(SmolLM2, KeysAndValues) {
  const GoldenFile golden(SmolLM2Data("golden.safetensors"));
  const auto ids = golden.Read<TokenId>("kv.ids");
  for (auto* device : {LoadSmolLM2().reference.get(), LoadSmolLM2().cpu.get()}) {
    const double bound =
        device == LoadSmolLM2().cpu.get() ? LoadSmolLM2().cpu_bound : LogitError("reference");
    const SlotId slot = device->Open(int(ids.size()), {});
    std::vector<int32_t> pos(ids.size());
    std::iota(pos.begin(), pos.end(), 0);
    device->RunLogits({ids, pos, std::vector<SlotId>(ids.size(), slot), {}});
    const KvSegment kv = device->Export(slot, 0, int(ids.size()));
    for (size_t layer : {0, 15, 29}) {
      for (const bool value : {false, true}) {
        std::vector<float> all, head(64);
        for (int h = 0; h < 3; ++h)
          for (int t = 0; t < int(ids.size()); ++t) {
            ReadHead(kv.kv(layer), value ? kv.kv(layer).v : kv.kv(layer).k, h, t, head);
            all.insert(all.end(), head.begin(), head.end());
          }
        const std::string name = "kv.layer." + std::to_string(layer) + (value ? ".v" : ".k");
        EXPECT_LE(RelativeError(all, golden.Read<float>(name)), bound)
            << name << " on " << device->Info().name;
      }
    }
    device->Close(slot);
  }
}

TEST(SmolLM2, Perplexity) {
  const GoldenFile golden(SmolLM2Data("golden.safetensors"));
  const auto ids = golden.Read<TokenId>("perplexity.ids");
  const auto want = golden.Read<float>("perplexity.nll");
  const Logits logits = AllLogits(*LoadSmolLM2().cpu, ids);
  double ours = 0, theirs = 0;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    const auto row = Row(logits, int(t));
    ours += LogSumExp(row) - double(row[size_t(ids[t + 1])]);
    theirs += double(want[t]);
  }
  const double ratio = std::exp((ours - theirs) / double(want.size()));
  EXPECT_NEAR(ratio, 1, 0.005);
  std::printf("perplexity %.4f of transformers'\n", ratio);
}

// Prefill on one instance, handoff, decode on another that shares nothing but the weights: the same bits.
TEST(SmolLM2, HandoffEqualsAlone) {
  const GoldenFile golden(SmolLM2Data("golden.safetensors"));
  const auto text = golden.Read<TokenId>("perplexity.ids");
  DecodeDevice& decode = *LoadSmolLM2().cpu;
  PrefillVia prefill(LoadSmolLM2().open_cpu());
  for (int length : {1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 47, 64, 65, 90, 127, 128, 129, 200, 255, 300}) {
    const std::span<const TokenId> ids = std::span(text).first(size_t(length));
    const auto session = prefill.Begin(length, {}, {});
    const SlotId slot = decode.Open(length, {});
    for (int at = 0; at < length - 1; at += 100)
      decode.Import(slot, session->Run(ids.subspan(size_t(at), size_t(std::min(100, length - 1 - at))), at));
    EXPECT_EQ(Feed(decode, slot, ids, length - 1, length, 1), Alone(decode, ids, length))
        << length << " tokens";
    decode.Close(slot);
  }
}

TEST(SmolLM2, MlxAgreesWithTheCpu) {
  const auto open = LoadSmolLM2On("mlx");
  if (!open) GTEST_SKIP() << "this build has no MLX";
  CheckAgainstCpu(*open(), {"capital"});
}

// Prefill on cpu and mlx, decode on cpu and mlx: the logits of the cpu alone, within its bound.
TEST(SmolLM2, PrefillAndDecodeOnCpuAndMlx) {
  const auto open = LoadSmolLM2On("mlx");
  if (!open) GTEST_SKIP() << "this build has no MLX";
  const GoldenFile golden(SmolLM2Data("golden.safetensors"));
  const auto ids = golden.Read<TokenId>("capital.ids");
  const size_t prompt = 12;
  for (const bool prefill_on_mlx : {false, true}) {
    PrefillVia prefill(prefill_on_mlx ? open() : LoadSmolLM2().open_cpu());
    const KvSegment segment = prefill.Begin(int(prompt), {}, {})->Run(std::span(ids).first(prompt - 1), 0);
    for (const bool decode_on_mlx : {false, true}) {
      const auto decode = decode_on_mlx ? open() : LoadSmolLM2().open_cpu();
      const SlotId slot = decode->Open(64, {});
      decode->Import(slot, segment);
      const auto got = Feed(*decode, slot, ids, int(prompt) - 1, int(prompt), 1);
      const auto want = Alone(*LoadSmolLM2().cpu, std::span(ids).first(prompt), int(prompt));
      EXPECT_LE(RelativeError(got, want), LoadSmolLM2().cpu_bound)
          << (prefill_on_mlx ? "mlx" : "cpu") << " to " << (decode_on_mlx ? "mlx" : "cpu");
    }
  }
}

}  // namespace
}  // namespace pd::test
