// Tokens chosen on the device are those that the host's sampler chooses.
#include "mlx/sampling.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace pd {
namespace {

constexpr int kVocab = 501;

std::vector<float> RandomLogits(unsigned seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(kVocab);
  for (float& l : logits) l = normal(generator);
  return logits;
}

// Every rule on its own row of one step, over many draws.
TEST(MlxSampling, AgreesWithTheHost) {
  std::vector<SampleSpec> rules(9);
  rules[1].temperature = 1;
  rules[2].temperature = 0.7f, rules[2].top_k = 5;
  rules[3].temperature = 1.3f, rules[3].top_p = 0.8f;
  rules[4].temperature = 1, rules[4].min_p = 0.1f;
  rules[5].temperature = 2, rules[5].top_k = 40, rules[5].top_p = 0.9f, rules[5].min_p = 0.02f;
  rules[6].temperature = 0.01f;
  rules[7].temperature = 1, rules[7].top_k = 1;
  rules[8].temperature = 1, rules[8].top_p = 1e-4f;
  MlxKernels kernels;
  Sampler sampler;
  int different = 0, draws = 0;
  for (unsigned draw = 0; draw < 60; ++draw) {
    std::vector<float> logits;
    for (size_t i = 0; i < rules.size(); ++i) {
      rules[i].seed = 7 + i, rules[i].draw = draw;
      const auto row = RandomLogits(draw * 16 + unsigned(i), 2);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    const auto got =
        SampleRows(kernels, mx::array(logits.begin(), {int(rules.size()), kVocab}, mx::float32), rules);
    const auto tokens = ReadInts(got.tokens);
    const auto report = ReadInts(got.report);
    for (size_t i = 0; i < rules.size(); ++i) {
      const Sampled want = sampler.Sample(std::span(logits).subspan(i * kVocab, kVocab), rules[i]);
      ++draws;
      // Sums in float may put a draw that falls on the border between two tokens on its other side.
      if (tokens[i] != want.token) {
        ++different;
        continue;
      }
      EXPECT_EQ(report[2 * i], tokens[i]);
      EXPECT_NEAR(std::bit_cast<float>(report[2 * i + 1]), want.logprob, 1e-4) << "rule " << i;
    }
  }
  EXPECT_LE(different, draws / 200);
}

TEST(MlxSampling, LowestOfEqualsAndOneRuleAlone) {
  std::vector<float> logits(2 * kVocab, -1);
  logits[40] = logits[41] = 3, logits[kVocab + 500] = 2;
  MlxKernels kernels;
  const mx::array rows(logits.begin(), {2, kVocab}, mx::float32);
  const std::vector<SampleSpec> greedy(2);
  EXPECT_EQ(ReadInts(SampleRows(kernels, rows, greedy).tokens), (std::vector<int32_t>{40, 500}));
  std::vector<SampleSpec> one_of_k(2);
  for (SampleSpec& s : one_of_k) s.temperature = 1, s.top_k = 1;
  EXPECT_EQ(ReadInts(SampleRows(kernels, rows, one_of_k).tokens), (std::vector<int32_t>{40, 500}));
}

TEST(MlxSampling, WhatTheDeviceLeavesToTheHost) {
  EXPECT_TRUE(SamplesOnDevice({}));
  SampleSpec penalty, bias, alternatives;
  penalty.penalties.repetition = 1.1f;
  const std::pair<TokenId, float> one[] = {{3, -1.f}};
  bias.bias = one;
  alternatives.top_logprobs = 1;
  for (const SampleSpec& s : {penalty, bias, alternatives}) EXPECT_FALSE(SamplesOnDevice(s));
}

}  // namespace
}  // namespace pd
