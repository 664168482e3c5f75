#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace pd {
namespace {

using Kind = RopeScaling::Kind;

// Linear interpolation between extrapolated (high) and interpolated (low) frequencies, by how often a
// dimension turns over the original context. YaRN, arXiv 2309.00071, section 3.2.
void Yarn(const RopeSpec& rope, std::vector<double>& inverse) {
  const RopeScaling& s = rope.scaling;
  // The dimension pair that makes `rotations` turns over the original context.
  const auto dimension = [&](double rotations) {
    return rope.dims * std::log(s.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension(s.beta_fast), high = dimension(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, rope.dims - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double interpolated = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] *= interpolated / s.factor + (1 - interpolated);
  }
}

// Long wavelengths are stretched by `factor`, short ones kept, those between blended. Llama 3.1.
void Llama3(const RopeScaling& s, std::vector<double>& inverse) {
  for (double& f : inverse) {
    const double rotations = s.original_context * f / (2 * std::numbers::pi);
    const double keep = std::clamp((rotations - s.low_freq) / (s.high_freq - s.low_freq), 0.0, 1.0);
    f = (1 - keep) * f / s.factor + keep * f;
  }
}

}  // namespace

RopeFrequencies Frequencies(const RopeSpec& rope, RopeVariant variant) {
  const RopeScaling& s = rope.scaling;
  double theta = rope.theta;
  if (s.kind == Kind::kDynamic && variant.length > s.original_context) {
    // "NTK-aware" with the factor growing with length: the base, not the position, is stretched.
    const double stretch = s.factor * variant.length / s.original_context - (s.factor - 1);
    theta *= std::pow(stretch, rope.dims / (rope.dims - 2.0));
  }
  RopeFrequencies result;
  result.inverse.resize(size_t(rope.dims) / 2);
  for (size_t i = 0; i < result.inverse.size(); ++i)
    result.inverse[i] = std::pow(theta, -2.0 * double(i) / rope.dims);

  switch (s.kind) {
    case Kind::kNone:
    case Kind::kDynamic:
      break;
    case Kind::kLinear:
      for (double& f : result.inverse) f /= s.factor;
      break;
    case Kind::kYarn:
      Yarn(rope, result.inverse);
      result.scale = s.attention_factor;
      break;
    case Kind::kLlama3:
      Llama3(s, result.inverse);
      break;
    case Kind::kFactors:
    case Kind::kLongrope: {
      const bool is_long = s.kind == Kind::kLongrope && variant.length > s.original_context;
      const std::vector<double>& factors = is_long ? s.long_factors : s.factors;
      PD_CHECK(factors.size() == result.inverse.size());
      for (size_t i = 0; i < factors.size(); ++i) result.inverse[i] /= factors[i];
      result.scale = s.attention_factor;
      break;
    }
  }
  if (rope.pairs > 0) std::fill(result.inverse.begin() + rope.pairs, result.inverse.end(), 0.0);
  return result;
}

RopeVariant FixRope(const ModelSpec& spec, int tokens) {
  RopeVariant variant;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec* attention = FindAttention(layer);
    if (!attention || !attention->rope) continue;
    const RopeScaling& s = attention->rope->scaling;
    if (tokens <= s.original_context) continue;
    if (s.kind == Kind::kDynamic) variant.length = tokens;
    // One long variant only: its frequencies do not depend on how long.
    if (s.kind == Kind::kLongrope) variant.length = std::max(variant.length, s.original_context + 1);
  }
  return variant;
}

}  // namespace pd
