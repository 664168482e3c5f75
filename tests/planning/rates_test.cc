#include "planning/rates.h"

#include <gtest/gtest.h>

#include "tests/serving/fake_devices.h"

namespace pd::test {
namespace {

const PhysicalDevice kCpu{PhysicalDevice::Kind::kCpu, 0};

// FakeSpec: width 2, one head of two, hidden 2, vocabulary 100, tied or not.
TEST(Rates, PrefillCountsOperations) {
  RequestStats stats;
  stats.prefill_tokens = 3, stats.prefill_ms = 2;
  const PhaseRates rates = PrefillRates(FakeSpec(), stats, 0);
  EXPECT_DOUBLE_EQ(rates.tokens_per_s, 1500);
  // Keys and values only: two matrices of 2x2 for three rows, a multiplication and an addition each.
  EXPECT_DOUBLE_EQ(rates.flops_per_s, 3 * 2 * 4 * 2 / 0.002);
  EXPECT_EQ(rates.impossible, "");
}

TEST(Rates, DecodeCountsBytes) {
  RequestStats stats;
  stats.prefill_tokens = 4, stats.decode_tokens = 2, stats.decode_ms = 1;
  DeviceInfo info;
  info.weight_bytes = 1000, info.memory = {.kv = DType::kF16};
  const PhaseRates rates = DecodeRates(FakeSpec(), stats, info, 0, 4e6);
  // Steps at positions 4 and 5 read the weights, and 5 and 6 tokens of keys and values.
  EXPECT_DOUBLE_EQ(rates.bytes_per_s, (2 * 1000 + (5 + 6) * 8) / 0.001);
  EXPECT_DOUBLE_EQ(rates.bandwidth_share, rates.bytes_per_s / 4e6);
  EXPECT_DOUBLE_EQ(rates.tokens_per_s, 2000);
  EXPECT_EQ(rates.impossible, "");
}

TEST(Rates, NothingDoneIsNoRate) {
  EXPECT_EQ(PrefillRates(FakeSpec(), {}, 1).tokens_per_s, 0);
  EXPECT_EQ(DecodeRates(FakeSpec(), {}, {}, 1, 1).tokens_per_s, 0);
}

// A published result: 128 tokens of a 1.1B model "prefilled" in 0.43 ms, on a lazy graph that was
// never evaluated.
TEST(Rates, RefusesWhatCannotBe) {
  ModelSpec spec = FakeSpec(2048);
  spec.width = 2048, spec.vocab = 32000;
  AttentionOf(spec.layers[0]).heads = 32, AttentionOf(spec.layers[0]).kv_heads = 4,
  AttentionOf(spec.layers[0]).head_dim = 64;
  MlpOf(spec.layers[0]).hidden = 5632;
  spec.layers.resize(22, spec.layers[0]);
  RequestStats stats;
  stats.prefill_tokens = 128, stats.prefill_ms = 0.43;
  const PhaseRates prefill = PrefillRates(spec, stats, PeakFlops(kCpu, 8));
  EXPECT_GT(prefill.flops_per_s, 500e12);
  EXPECT_TRUE(prefill.impossible.ends_with(" TFLOP/s, more than the 98.3 TFLOP/s of this device"))
      << prefill.impossible;
  stats.prefill_ms = 430;
  EXPECT_EQ(PrefillRates(spec, stats, PeakFlops(kCpu, 8)).impossible, "");

  stats.decode_tokens = 10, stats.decode_ms = 100;
  DeviceInfo info;
  info.weight_bytes = size_t(1) << 30;
  EXPECT_EQ(DecodeRates(spec, stats, info, 0, 100e9).impossible, "");
  EXPECT_EQ(DecodeRates(spec, stats, info, 0, 50e9).impossible,
            "10.77 GB in 100 ms = 107.7 GB/s, more than the 50 GB/s of this device");
  stats.decode_ms = 0.001;
  EXPECT_NE(DecodeRates(spec, stats, info, PeakFlops(kCpu, 2), 0).impossible, "");
}

TEST(Rates, PeakOfOtherChipsIsUnknown) {
  EXPECT_EQ(PeakFlops({PhysicalDevice::Kind::kGpu, 0}, 8), 0);
  EXPECT_EQ(PeakFlops(kCpu, 4), 2 * PeakFlops(kCpu, 2));
}

}  // namespace
}  // namespace pd::test
