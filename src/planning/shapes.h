// Shapes of well-known models, for plans without their weights.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace pd {

// By name, ignoring case, or by parts of a name that fit only one shape: "TinyLlama", "llama-8b". Throws
// kNotFound, listing the shapes that fit, or all of them.
ModelSpec KnownShape(std::string_view name);
std::vector<std::string> KnownShapes();  // "qwen3-0.6b", ...

// Of the matrices that every prompt token is multiplied with: without embedding and head.
double CountLayerParameters(const ModelSpec& spec);

}  // namespace pd
