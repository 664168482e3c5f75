// The families, one file each; registry.cc lists them.
#pragma once
#include "model/registry.h"

namespace pd {

Family LlamaFamily();
Family QwenFamily();
Family GemmaFamily();

}  // namespace pd
