#include "planning/profile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "base/json.h"
#include "planning/shapes.h"
#include "tests/expect_error.h"

namespace pd::test {
namespace {

TEST(Profiles, EveryFigureHasASource) {
  ASSERT_GE(PublishedChips().size(), 7u);
  for (const char* chip : {"M1", "M3", "apple-m3-ultra", "M4", "Apple M4 Max", "m5 pro", "iPhone 17 Pro"})
    EXPECT_NO_THROW(FindChip(chip)) << chip;
  ExpectError(ErrorKind::kNotFound, {"M9", "apple-m4-max"}, [] { FindChip("M9"); });
}

// Of the measurements of known shapes two thirds are predicted within a fifth and none is off by more than
// half, except those with a doubtful source.
TEST(Profiles, PredictWhatWasMeasured) {
  int count = 0, close = 0;
  for (const ChipProfile& chip : PublishedChips())
    for (const Measurement& m : chip.measurements) {
      if (!m.note.empty()) continue;
      const double ratio = Predicted(chip, m) / m.value;
      EXPECT_GT(ratio, 1 / 1.5) << chip.name << " " << m.model << " " << m.phase << " " << m.tokens;
      EXPECT_LT(ratio, 1.5) << chip.name << " " << m.model << " " << m.phase << " " << m.tokens;
      ++count;
      close += std::abs(std::log(ratio)) < std::log(1.2);
    }
  EXPECT_GE(count, 15);
  EXPECT_GE(3 * close, 2 * count) << close << " of " << count;
}

TEST(Profiles, RefuseWhatPhysicsForbids) {
  const std::string good = ReadTextFile("profiles/apple-m4.json");
  EXPECT_NO_THROW(ReadChip(good, "good"));
  const auto changed = [&](const char* part, const char* figure, double value) {
    Json json = ParseJson(good, "good");
    json[part][figure]["value"] = value;
    return json.dump();
  };
  for (const auto& bad : {changed("gpu", "prefill_flops", 1e15), changed("ane", "prefill_flops", 1e15),
                          changed("gpu", "bandwidth_share", 1.2), changed("ane", "bandwidth", 1e12),
                          changed("ane", "slowdown", 0.9), changed("gpu", "layer_ms", -1)})
    EXPECT_THROW(ReadChip(bad, "bad"), Error);
  Json unsourced = ParseJson(good, "good");
  unsourced["gpu"]["peak_flops"]["source"] = "";
  EXPECT_THROW(ReadChip(unsourced.dump(), "bad"), Error);
}

double CountParameters(const ModelSpec& spec) {
  const double table = double(spec.vocab) * spec.width;
  return CountLayerParameters(spec) + (spec.tied_head ? table : 2 * table);
}

TEST(Shapes, HaveTheirParameters) {
  EXPECT_NEAR(CountParameters(KnownShape("qwen3-0.6b")), 0.596e9, 0.003e9);
  EXPECT_NEAR(CountParameters(KnownShape("tinyllama-1.1b")), 1.100e9, 0.002e9);
  EXPECT_NEAR(CountParameters(KnownShape("llama-3.1-8b")), 8.03e9, 0.01e9);
  EXPECT_NEAR(CountParameters(KnownShape("smollm2-135m")), 134.5e6, 0.5e6);
  ExpectError(ErrorKind::kNotFound, {"gpt-5", "qwen3-0.6b"}, [] { KnownShape("gpt-5"); });
}

// The feasibility write-up of this idea: TinyLlama on a laptop, which "GPU" rows never ran.
std::vector<TimedRow> WriteUp(const char* device, std::vector<double> ms) {
  std::vector<TimedRow> rows;
  const int tokens[] = {10, 64, 128, 512};
  for (size_t i = 0; i < ms.size(); ++i) rows.push_back({device, tokens[i], ms[i], PeakOf(device)});
  return rows;
}

TEST(Roofline, RefusesTheWriteUp) {
  const auto gpu = CheckRows(1.1e9, WriteUp("gpu", {0.83, 0.47, 0.43, 0.46}));
  EXPECT_EQ(gpu[0].verdict, Verdict::kDoubtful) << gpu[0].why;
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(gpu[i].verdict, Verdict::kImpossible) << gpu[i].why;
  EXPECT_NEAR(gpu[2].flops_per_s, 655e12, 1e12);
  EXPECT_NE(gpu[2].why.find("655 TFLOP/s"), std::string::npos) << gpu[2].why;
  EXPECT_NE(gpu[0].why.find("64 tokens took 0.47 ms"), std::string::npos) << gpu[0].why;

  const auto ane = CheckRows(1.1e9, WriteUp("ane", {136, 36, 34, 135}));
  for (const CheckedRow& row : ane) EXPECT_EQ(row.verdict, Verdict::kPlausible) << row.why;
  EXPECT_NE(ane[0].why.find("warm-up"), std::string::npos) << ane[0].why;
  EXPECT_EQ(ane[3].why.find("warm-up"), std::string::npos) << ane[3].why;
}

TEST(Roofline, TakesHonestTables) {
  // Fast chips, and a device that is flat only while memory sets the pace.
  EXPECT_EQ(CheckRows(8e9, {{"M3 Ultra GPU", 8192, 5570, PeakOf("M3 Ultra GPU")}})[0].verdict,
            Verdict::kPlausible);
  std::vector<TimedRow> bound;
  for (const int tokens : {1, 2, 4, 8}) bound.push_back({"gpu", tokens, 12.0, PeakOf("gpu")});
  for (const CheckedRow& row : CheckRows(8e9, bound)) EXPECT_EQ(row.verdict, Verdict::kPlausible) << row.why;
  // Weights cannot be read faster than the memory allows, however few tokens.
  const auto one = CheckRows(8e9, {{"gpu", 1, 1.0, PeakOf("gpu")}});
  EXPECT_EQ(one[0].verdict, Verdict::kImpossible) << one[0].why;
}

TEST(Roofline, KnowsDevicesByName) {
  EXPECT_GT(PeakOf("gpu").flops, PeakOf("M4 GPU").flops);
  EXPECT_EQ(PeakOf("Apple M4 Max GPU").name, "Apple M4 Max GPU");
  EXPECT_GT(PeakOf("ane").flops, 1e13);
  ExpectError(ErrorKind::kBadRequest, {"toaster"}, [] { PeakOf("toaster"); });
  ExpectError(ErrorKind::kBadRequest, {"M9 GPU"}, [] { PeakOf("M9 GPU"); });
}

}  // namespace
}  // namespace pd::test
