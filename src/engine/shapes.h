// Shapes of well-known models, for plans without their weights.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace pd {

// By name, upper case aside, or by parts of it that fit no other: "TinyLlama", "llama-8b". Throws kNotFound,
// listing those that fit, or all.
ModelSpec KnownShape(std::string_view name);
bool IsKnownShape(std::string_view name);
std::vector<std::string> KnownShapes();  // "qwen3-0.6b", ...

// Entries of all tensors, a tied head once.
double CountParameters(const ModelSpec& spec);
// Of the matrices that a token of a prompt is multiplied with: neither embedding nor head.
double CountLayerParameters(const ModelSpec& spec);

}  // namespace pd
