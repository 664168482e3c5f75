// How this program uses the Neural Engine.
#pragma once
#include "coreml/runtime/runtime.h"

namespace pd::cli {

// Compiled models in the cache folder, first predictions in a process of this program's own.
RuntimeOptions AneRuntimeOptions(CancelCheck cancelled);

}  // namespace pd::cli
