// How a bundle runs on this system's Core ML.
#pragma once
#include <functional>
#include <string>

#include "coreml/runtime/runtime.h"
#include "open/open.h"

namespace pd {

// Core ML's options; `note` as OpenOptions::note.
RuntimeOptions ToRuntimeOptions(const BundleRuntime& runtime, std::function<void(const std::string&)> note);

}  // namespace pd
