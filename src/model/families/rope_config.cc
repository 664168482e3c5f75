// RoPE from config.json, as transformers' modeling_rope_utils reads it.
#include <cmath>

#include "base/error.h"
#include "model/families/config.h"

namespace pd {
namespace {

using Kind = RopeScaling::Kind;

std::vector<double> Factors(JsonReader& rope, std::string_view key, size_t count) {
  const Json& list = rope.Value(key);
  if (!list.is_array() || list.size() != count)
    throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" must be a list of {} numbers, one for each rotated pair",
               rope.where(), key, count);
  std::vector<double> factors;
  for (const Json& factor : list) {
    if (!factor.is_number() || !(factor.get<double>() > 0 && factor.get<double>() <= 1e30))
      throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" holds {:.40}, which is no number above 0", rope.where(),
                 key, factor.dump());
    factors.push_back(factor.get<double>());
  }
  return factors;
}

// Python's `value or fallback`: null and 0 count as absent.
double NumberOrDefault(JsonReader& rope, std::string_view key, double fallback) {
  return rope.NumberOr(key, 0) == 0 ? fallback : PositiveNumber(rope, key, std::nullopt);
}

// YaRN's attention temperature, arXiv 2309.00071 section 3.4, as a factor on cos and sin.
double YarnScale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double YarnAttentionFactor(JsonReader& rope, double factor) {
  const double mscale = rope.NumberOr("mscale", 0), all_dim = rope.NumberOr("mscale_all_dim", 0);
  if (rope.Has("attention_factor")) return PositiveNumber(rope, "attention_factor", std::nullopt);
  rope.Ignore({"attention_factor"});
  if (mscale != 0 && all_dim != 0) return YarnScale(factor, mscale) / YarnScale(factor, all_dim);
  return YarnScale(factor, 1);
}

double LongropeAttentionFactor(JsonReader& rope, double factor, int original) {
  if (rope.Has("attention_factor")) return PositiveNumber(rope, "attention_factor", std::nullopt);
  rope.Ignore({"attention_factor"});
  return factor <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
}

// "rope_type", or "type" in configs of old; transformers writes both when it has read the old one.
std::string RopeType(JsonReader& rope) {
  const std::string old = rope.StringOr("type", "default");
  const std::string type = rope.StringOr("rope_type", old);
  if (rope.Has("type") && type != old)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: \"rope_type\" is \"{:.40}\" and \"type\" is \"{:.40}\"; keep the right one", rope.where(),
               type, old);
  return type;
}

RopeScaling ReadScaling(JsonReader& rope, const std::string& type, const Sizes& sizes,
                        std::optional<int64_t> outer_original) {
  RopeScaling s;
  const size_t pairs = size_t(sizes.head_dim) / 2;
  const auto factor = [&] { return PositiveNumber(rope, "factor", std::nullopt); };
  const auto original = [&] {
    const int64_t inner = rope.IntOr("original_max_position_embeddings", sizes.max_positions, 1);
    return int(outer_original.value_or(inner));
  };
  const auto factor_or_ratio = [&] {
    return PositiveNumber(rope, "factor", double(sizes.max_positions) / s.original_context);
  };
  if (type == "default") return s;
  if (type == "linear") {
    s.kind = Kind::kLinear;
    s.factor = factor();
  } else if (type == "dynamic") {
    s.kind = Kind::kDynamic;
    s.factor = factor();
    s.original_context = sizes.max_positions;
  } else if (type == "yarn") {
    s.kind = Kind::kYarn;
    s.original_context = original();
    s.factor = factor_or_ratio();
    s.beta_fast = NumberOrDefault(rope, "beta_fast", 32);
    s.beta_slow = NumberOrDefault(rope, "beta_slow", 1);
    s.truncate = rope.BoolOr("truncate", true);
    s.attention_factor = YarnAttentionFactor(rope, s.factor);
    rope.Ignore({"finetuned"});  // says that the weights were trained with it
  } else if (type == "llama3") {
    s.kind = Kind::kLlama3;
    s.original_context = original();
    s.factor = factor();
    s.low_freq = PositiveNumber(rope, "low_freq_factor", std::nullopt);
    s.high_freq = PositiveNumber(rope, "high_freq_factor", std::nullopt);
  } else if (type == "longrope") {
    s.kind = Kind::kLongrope;
    s.original_context = original();
    s.factor = factor_or_ratio();
    s.factors = Factors(rope, "short_factor", pairs);
    s.long_factors = Factors(rope, "long_factor", pairs);
    s.attention_factor = LongropeAttentionFactor(rope, s.factor, s.original_context);
  } else if (type == "factors") {
    s.kind = Kind::kFactors;
    s.factors = Factors(rope, "factors", pairs);
  } else {
    throw Fail(ErrorKind::kUnsupported,
               "{}: \"rope_type\" is \"{:.40}\"; known are default, linear, dynamic, yarn, llama3, longrope",
               rope.where(), type);
  }
  return s;
}

}  // namespace

RopeSpec ReadRopeObject(const Json* object, const std::string& where, const Sizes& sizes, double theta,
                        std::optional<int64_t> original) {
  RopeSpec spec;
  spec.dims = sizes.head_dim;
  spec.theta = theta;
  if (!object) return spec;
  JsonReader rope(*object, where);
  spec.theta = PositiveNumber(rope, "rope_theta", theta);
  rope.Expect("partial_rotary_factor", 1.0);
  spec.scaling = ReadScaling(rope, RopeType(rope), sizes, original);
  rope.Done();
  return spec;
}

RopeSpec ReadRope(JsonReader& config, const Sizes& sizes) {
  if (config.Has("rope_scaling") && config.Has("rope_parameters"))
    throw Fail(ErrorKind::kUnsupported,
               "{}: has both \"rope_scaling\" and \"rope_parameters\"; keep the right one", config.where());
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* object = config.Has(key) ? &config.Value(key) : nullptr;
  config.Ignore({"rope_scaling", "rope_parameters"});  // the other one, null
  const double theta = PositiveNumber(config, "rope_theta", 10000);
  std::optional<int64_t> original;
  if (config.Has("original_max_position_embeddings"))
    original = config.Int("original_max_position_embeddings", 1);
  config.Ignore({"original_max_position_embeddings"});
  return ReadRopeObject(object, config.where() + ": " + key, sizes, theta, original);
}

int MaxContext(const RopeSpec& rope, int max_positions) {
  const RopeScaling& s = rope.scaling;
  const auto stretched = [&](int length) {
    return int(std::min(double(length) * s.factor, double(INT32_MAX)));
  };
  if (s.kind == Kind::kDynamic) return std::max(max_positions, stretched(max_positions));
  if (s.kind == Kind::kYarn) return std::max(max_positions, stretched(s.original_context));
  return max_positions;
}

}  // namespace pd
