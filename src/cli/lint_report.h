// What `inspect` says about exported models and about packages.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace pd::cli {

// Whether `path` is a bundle or a .mlpackage, rather than a model.
bool IsExported(const std::filesystem::path& path);

// What it is and what each function takes, then what violates the Neural Engine's rules or may, then with
// `ops` every op of every function with its shape and verdict; as JSON all of this, always. Throw what
// reading them throws.
std::string DescribeExported(const std::filesystem::path& path, bool ops);
Json ExportedToJson(const std::filesystem::path& path);

}  // namespace pd::cli
