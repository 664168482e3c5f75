// What `inspect` says about exported models and about packages.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace pd::cli {

// Whether `path` is a bundle or a .mlpackage, rather than a model.
bool IsExported(const std::filesystem::path& path);

// Every op of every function with its shape and verdict, then what each function takes. Throw what reading
// them throws.
std::string DescribeExported(const std::filesystem::path& path);
Json ExportedToJson(const std::filesystem::path& path);

}  // namespace pd::cli
