#include "sample/softmax.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/exp.h"

namespace pd {
namespace {

constexpr size_t kLanes = 16;   // independent chains, so that a reduction fills any vector width
constexpr size_t kBlock = 512;  // values summed in float before they join a double

// Branchless select. Compilers do not vectorise it as a branch where float exceptions could be observed.
inline float OrZero(bool keep, float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & (0u - uint32_t(keep)));
}

// For x <= 0, in plain operations that a compiler vectorises; rounds by adding 1.5 * 2^23. The result is
// meaningless below kExpLow, and then not used.
inline float Exp(float x) {
  constexpr float kRound = 12582912.f;
  const float shifted = x * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = kExp6 * r + kExp5;
  p = p * r + kExp4;
  p = p * r + kExp3;
  p = p * r + kExp2;
  p = p * r + 1.f;
  p = p * r + 1.f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  return OrZero(x >= kExpLow, p * std::bit_cast<float>(exponent << 23));
}

// Orders floats as integers, which reduce in vectors without a special case: negative NaN, -infinity, ...,
// -0, 0, ..., infinity, positive NaN. Its own inverse.
inline int32_t Key(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// Sum in float of at most kBlock values.
float SumBlock(std::span<const float> weights) {
  std::array<float, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= weights.size(); i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += weights[i + l];
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < weights.size(); ++i) sum += weights[i];
  return sum;
}

}  // namespace

float LargestLogit(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  int32_t most = std::numeric_limits<int32_t>::min(), least = std::numeric_limits<int32_t>::max();
  for (float logit : logits) {
    most = std::max(most, Key(logit));
    least = std::min(least, Key(logit));
  }
  if (most >= Key(kInfinity) || least < Key(-kInfinity))
    throw Fail(ErrorKind::kDevice,
               "the model's logits hold NaN or infinity: its weights or its device are broken");
  if (most == Key(-kInfinity))
    throw Fail(ErrorKind::kDevice, "every logit is minus infinity: no token can be chosen");
  return std::bit_cast<float>(Key(std::bit_cast<float>(most)));
}

void RelativeWeights(std::span<const float> logits, float largest, float temperature, float least,
                     std::span<float> weights) {
  PD_CHECK(weights.size() == logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const float weight = Exp((logits[i] - largest) / temperature);
    weights[i] = OrZero(weight >= least, weight);
  }
}

double SumOfWeights(std::span<const float> weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); i += kBlock)
    sum += double(SumBlock(weights.subspan(i, std::min(kBlock, weights.size() - i))));
  return sum;
}

double SumOfExps(std::span<const float> logits, float largest, float temperature) {
  std::array<float, kBlock> buffer;
  double sum = 0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const auto block = std::span(buffer).first(std::min(kBlock, logits.size() - i));
    RelativeWeights(logits.subspan(i, block.size()), largest, temperature, 0, block);
    sum += double(SumBlock(block));
  }
  return sum;
}

int PickWeight(std::span<const float> weights, double target) {
  double sum = 0;
  size_t end = 0;
  for (size_t begin = 0; begin < weights.size(); begin = end) {
    end = std::min(begin + kBlock, weights.size());
    const double with_block = sum + double(SumBlock(weights.subspan(begin, end - begin)));
    if (with_block > target) {
      for (size_t i = begin; i < end; ++i) {
        sum += double(weights[i]);
        if (sum > target) return int(i);
      }
      break;  // the block's sum was rounded up past the target
    }
    sum = with_block;
  }
  while (end > 0 && weights[end - 1] == 0) --end;
  PD_CHECK(end > 0);
  return int(end) - 1;
}

}  // namespace pd
