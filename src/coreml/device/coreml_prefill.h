// Prefill by Core ML programs, except for the predictor that runs them.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "coreml/device/predictor.h"
#include "coreml/export/bundle.h"
#include "device/device.h"
#include "formats/model_source.h"

namespace pd {

struct CoreMlOptions {
  std::string name = "ane-reference";  // for statistics
  PhysicalDevice physical;
  // Asked before each call of a function; true ends the chunk with kCancelled. Empty: never.
  std::function<bool()> cancelled = {};
};

// `model` provides the spec and the embedding table; the bundle must be made of its weights (kBadRequest).
// Calls `open` once for each package of the bundle. Several sessions may be open at once; their calls take
// turns.
std::unique_ptr<PrefillDevice> OpenCoreMlPrefill(const ModelSource& model, const Bundle& bundle,
                                                 const PredictorFactory& open, CoreMlOptions options);

}  // namespace pd
