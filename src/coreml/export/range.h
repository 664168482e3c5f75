// Keeps activations inside fp16 by powers of two, chosen from what a pass over sample text measured.
#pragma once
#include <vector>

#include "coreml/export/sample_pass.h"
#include "coreml/mil/encoded.h"

namespace pd {

// Sample text does not show the largest activation there is, so a stream above kComfortable is scaled down to
// it. Above kMostMagnitude the export fails: matrix products were seen to become infinite near 32,752.
inline constexpr float kComfortable = 8192, kMostMagnitude = 32768;

// No scaling at all: what is exported without a sample pass.
mil::RangeScales UnitScales(const ModelSpec& spec);
mil::RangeScales ChooseScales(const ModelSpec& spec, const std::vector<LayerSample>& layers);

// The largest magnitude of each layer in the exported program.
std::vector<float> ScaledMagnitudes(const ModelSpec& spec, const std::vector<LayerSample>& layers,
                                    const mil::RangeScales& scales);

}  // namespace pd
