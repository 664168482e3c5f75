// The predictor for one package of a bundle, as specified in runtime.h.
#pragma once
#include <filesystem>
#include <memory>

#include "coreml/device/predictor.h"

namespace pd {

class RuntimeShared;

// Compiles the package, or finds it compiled. Throws kCancelled.
std::unique_ptr<Predictor> OpenRuntimePredictor(std::shared_ptr<RuntimeShared> shared,
                                                const std::filesystem::path& package);

}  // namespace pd
