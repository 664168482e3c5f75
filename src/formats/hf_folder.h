// A model from a Hugging Face folder.
#pragma once
#include "formats/model_source.h"

namespace pd {

// config.json beside model.safetensors, or beside model.safetensors.index.json and the shards it names.
// Throws as OpenModel does.
ModelSource OpenFolder(const std::filesystem::path& folder);

}  // namespace pd
