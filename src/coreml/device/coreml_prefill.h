// Prefill by Core ML programs: everything but the predictor that runs them.
#pragma once
#include <memory>
#include <string>

#include "coreml/device/predictor.h"
#include "coreml/export/bundle.h"
#include "device/device.h"
#include "formats/model_source.h"

namespace pd {

struct CoreMlOptions {
  std::string name = "ane-reference";  // what statistics say
  PhysicalDevice physical;
};

// `model` gives the spec and the embedding table; the bundle must be of its weights (kBadRequest). `open` is
// called once for each package of the bundle. Sessions may be open side by side; their calls take turns.
std::unique_ptr<PrefillDevice> OpenCoreMlPrefill(const ModelSource& model, const Bundle& bundle,
                                                 const PredictorFactory& open, CoreMlOptions options);

}  // namespace pd
