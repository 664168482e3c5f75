// A model from one GGUF file.
#pragma once
#include "formats/model_source.h"

namespace pd {

// Throws as OpenModel does.
ModelSource OpenGgufModel(std::shared_ptr<const GgufFile> gguf);

}  // namespace pd
