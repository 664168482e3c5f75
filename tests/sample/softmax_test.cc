#include "sample/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "sample/uniform.h"

namespace pd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// e^x, as a token's weight is computed.
float WeightOf(float x) {
  float weight = -1;
  RelativeWeights({&x, 1}, 0, 1, 0, {&weight, 1});
  return weight;
}

TEST(RelativeWeights, AreWithinTheirBoundEverywhere) {
  for (float x = 0; x > -87; x -= 0.00137f) {
    const double exact = std::exp(double(x));
    ASSERT_NEAR(double(WeightOf(x)) / exact, 1, 2e-7) << x;
  }
  EXPECT_EQ(WeightOf(0), 1);
  EXPECT_EQ(WeightOf(-0.f), 1);
  EXPECT_GT(WeightOf(-87), 0);
  EXPECT_EQ(WeightOf(-87.1f), 0);
  EXPECT_EQ(WeightOf(-std::numeric_limits<float>::max()), 0);
  EXPECT_EQ(WeightOf(-kInfinity), 0);
}

TEST(LargestLogit, FindsItAnywhereAndRefusesWhatIsBroken) {
  for (size_t n : {1u, 2u, 15u, 16u, 17u, 31u, 33u, 100u}) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> logits(n, -1.f);
      logits[at] = 2;
      EXPECT_EQ(LargestLogit(logits), 2);
      logits[at] = -kInfinity;
      if (n > 1) {
        EXPECT_EQ(LargestLogit(logits), -1);
      }
      for (float broken :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
        logits[at] = broken;
        EXPECT_THROW(LargestLogit(logits), Error) << n << " " << at << " " << broken;
      }
    }
  }
  EXPECT_THROW(LargestLogit(std::vector<float>(20, -kInfinity)), Error);
}

TEST(Sums, EqualDoubleArithmetic) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0, 3);
  for (size_t n : {1u, 16u, 17u, 511u, 512u, 513u, 3000u}) {
    std::vector<float> logits(n), weights(n);
    for (float& l : logits) l = normal(generator);
    const float largest = LargestLogit(logits);
    double exact = 0;
    for (float l : logits) exact += std::exp((double(l) - double(largest)) / 0.7);
    RelativeWeights(logits, largest, 0.7f, 0, weights);
    EXPECT_NEAR(SumOfWeights(weights) / exact, 1, 1e-6);
    EXPECT_EQ(SumOfExps(logits, largest, 0.7f), SumOfWeights(weights));
  }
}

TEST(PickWeight, StopsWhereTheRunningSumPassesTheTarget) {
  std::vector<float> weights(2000, 0.f);
  weights[3] = 1, weights[600] = 2, weights[601] = 0.5f, weights[1700] = 4;
  EXPECT_EQ(PickWeight(weights, 0), 3);
  EXPECT_EQ(PickWeight(weights, 0.999), 3);
  EXPECT_EQ(PickWeight(weights, 1), 600);
  EXPECT_EQ(PickWeight(weights, 2.999), 600);
  EXPECT_EQ(PickWeight(weights, 3), 601);
  EXPECT_EQ(PickWeight(weights, 3.5), 1700);
  EXPECT_EQ(PickWeight(weights, 7.5), 1700);  // nothing exceeds it: the last of positive weight
  EXPECT_EQ(PickWeight(weights, 9), 1700);
}

// A block's sum in float lanes and its running sum in double may differ in the last bit. Whatever the target,
// the choice has positive weight and ascends with the target.
TEST(PickWeight, AscendsWithTheTarget) {
  std::mt19937 generator(5);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> weights(1500);
  for (float& w : weights) w = uniform(generator) < 0.5f ? 0 : uniform(generator) * 1e-3f;
  const double total = SumOfWeights(weights);
  int last = 0;
  for (double u = 0; u <= 1; u += 1e-4) {
    const int pick = PickWeight(weights, u * total);
    EXPECT_GE(pick, last);
    EXPECT_GT(weights[size_t(pick)], 0);
    last = pick;
  }
}

// Known answers published with the Random123 library.
TEST(Philox, GivesThePublishedAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, UsesEveryBitOfSeedAndDraw) {
  EXPECT_EQ(Uniform(0, 0), double(0xe169c58d6627e8d5 >> 11) * 0x1p-53);
  const double base = Uniform(5, 9);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(Uniform(5 ^ (uint64_t(1) << bit), 9), base);
    EXPECT_NE(Uniform(5, 9 ^ (uint64_t(1) << bit)), base);
  }
}

}  // namespace
}  // namespace pd
