// Where exported models are.
#pragma once
#include <filesystem>
#include <optional>

#include "formats/model_source.h"

namespace pd {

// Where `export` puts a model's bundle unless it is told: by the digest of the model's weights, which are all
// read for it.
std::filesystem::path DefaultBundlePath(const std::filesystem::path& cache, ModelSource& model);

// `named` if it is not empty, whether it exists or not; else the bundle at DefaultBundlePath, nullopt if
// there is none. Reads the weights only if the cache holds a bundle of the model's family.
std::optional<std::filesystem::path> FindBundle(const std::filesystem::path& named,
                                                const std::optional<std::filesystem::path>& cache,
                                                ModelSource& model);
// The same; throws kNotFound, with the way to make one, if there is none.
std::filesystem::path RequireBundle(const std::filesystem::path& named,
                                    const std::optional<std::filesystem::path>& cache, ModelSource& model);

}  // namespace pd
