#include "planning/shapes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "model/weights.h"

namespace pd {
namespace {

struct NamedShape {
  const char* name;
  int layers, width, hidden, heads, kv_heads, head_dim, vocab, context;
  bool tied, qk_norm;
};

// From the models' config.json.
constexpr NamedShape kShapes[] = {
    {"smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, true, false},
    {"qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true, true},
    {"qwen3-1.7b", 28, 2048, 6144, 16, 8, 128, 151936, 40960, true, true},
    {"qwen3-4b", 36, 2560, 9728, 32, 8, 128, 151936, 40960, true, true},
    {"qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, 40960, false, true},
    {"tinyllama-1.1b", 22, 2048, 5632, 32, 4, 64, 32000, 2048, false, false},
    {"llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, false},
    {"llama-3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256, 131072, true, false},
    {"llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, false},
};

std::vector<std::string> Parts(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '-') {
      parts.emplace_back();
    } else {
      parts.back() += char(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return parts;
}

// Whether all parts of `name` are parts of the shape's, in this order.
bool Fits(const NamedShape& shape, std::string_view name) {
  const auto wanted = Parts(name), have = Parts(shape.name);
  auto at = have.begin();
  for (const std::string& part : wanted) {
    at = std::find(at, have.end(), part);
    if (at == have.end()) return false;
    ++at;
  }
  return true;
}

std::vector<const NamedShape*> Fitting(std::string_view name) {
  std::vector<const NamedShape*> fitting;
  for (const NamedShape& shape : kShapes) {
    if (Parts(shape.name) == Parts(name)) return {&shape};
    if (Fits(shape, name)) fitting.push_back(&shape);
  }
  return fitting;
}

ModelSpec SpecOf(const NamedShape& shape) {
  ModelSpec spec;
  spec.width = shape.width, spec.vocab = shape.vocab, spec.max_context = shape.context;
  spec.tied_head = shape.tied;
  AttentionSpec attention;
  attention.heads = shape.heads, attention.kv_heads = shape.kv_heads, attention.head_dim = shape.head_dim;
  attention.scale = 1 / std::sqrt(float(shape.head_dim));
  attention.rope = RopeSpec{10000, shape.head_dim};
  if (shape.qk_norm) attention.qk_norm = QkNorm{};
  spec.layers.assign(size_t(shape.layers), PreNormLayer({}, attention, {.hidden = shape.hidden}));
  return spec;
}

}  // namespace

std::vector<std::string> KnownShapes() {
  std::vector<std::string> names;
  for (const NamedShape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

ModelSpec KnownShape(std::string_view name) {
  const std::vector<const NamedShape*> fitting = Fitting(name);
  if (fitting.size() == 1) return SpecOf(*fitting[0]);
  std::vector<std::string> names;
  for (const NamedShape* shape : fitting) names.emplace_back(shape->name);
  throw Fail(ErrorKind::kNotFound, "there is no {}model or known shape '{}'; shapes are {}",
             names.empty() ? "" : "single ", name, fmt::join(names.empty() ? KnownShapes() : names, ", "));
}

double CountLayerParameters(const ModelSpec& spec) {
  double count = 0;
  for (const WeightInfo& info : ListWeights(spec))
    if (info.role == Role::kLinear && info.layer >= 0) count += double(info.shape[0]) * double(info.shape[1]);
  return count;
}

}  // namespace pd
