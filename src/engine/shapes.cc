#include "engine/shapes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"

namespace pd {
namespace {

struct Shape {
  const char* name;
  int layers, width, hidden, heads, kv_heads, head_dim, vocab, context;
  bool tied, qk_norm;
};

// From the models' config.json.
constexpr Shape kShapes[] = {
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
bool Fits(const Shape& shape, std::string_view name) {
  const auto wanted = Parts(name), have = Parts(shape.name);
  auto at = have.begin();
  for (const std::string& part : wanted) {
    at = std::find(at, have.end(), part);
    if (at == have.end()) return false;
    ++at;
  }
  return true;
}

std::vector<const Shape*> Fitting(std::string_view name) {
  std::vector<const Shape*> fitting;
  for (const Shape& shape : kShapes) {
    if (Parts(shape.name) == Parts(name)) return {&shape};
    if (Fits(shape, name)) fitting.push_back(&shape);
  }
  return fitting;
}

ModelSpec SpecOf(const Shape& shape) {
  ModelSpec spec;
  spec.width = shape.width, spec.vocab = shape.vocab, spec.max_context = shape.context;
  spec.tied_head = shape.tied;
  LayerSpec layer;
  layer.attn.heads = shape.heads, layer.attn.kv_heads = shape.kv_heads, layer.attn.head_dim = shape.head_dim;
  layer.attn.scale = 1 / std::sqrt(float(shape.head_dim));
  layer.attn.rope = RopeSpec{10000, shape.head_dim, {}};
  if (shape.qk_norm) layer.attn.qk_norm = NormSpec{};
  layer.mlp.hidden = shape.hidden;
  spec.layers.assign(size_t(shape.layers), layer);
  return spec;
}

}  // namespace

std::vector<std::string> KnownShapes() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

bool IsKnownShape(std::string_view name) { return Fitting(name).size() == 1; }

ModelSpec KnownShape(std::string_view name) {
  const std::vector<const Shape*> fitting = Fitting(name);
  if (fitting.size() == 1) return SpecOf(*fitting[0]);
  std::vector<std::string> names;
  for (const Shape* shape : fitting) names.emplace_back(shape->name);
  throw Fail(ErrorKind::kNotFound, "there is no {}model or known shape '{}'; shapes are {}",
             names.empty() ? "" : "single ", name, fmt::join(names.empty() ? KnownShapes() : names, ", "));
}

double CountLayerParameters(const ModelSpec& spec) {
  double count = 0;
  for (const LayerSpec& layer : spec.layers) {
    const double width = spec.width;
    count +=
        width * (2.0 * layer.attn.q_width() + 2.0 * layer.attn.kv_width()) + 3.0 * width * layer.mlp.hidden;
  }
  return count;
}

double CountParameters(const ModelSpec& spec) {
  const double table = double(spec.vocab) * spec.width;
  return CountLayerParameters(spec) + (spec.tied_head ? table : 2 * table);
}

}  // namespace pd
