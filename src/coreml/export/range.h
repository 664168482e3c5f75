// Keeps activations within fp16 by powers of two, chosen from magnitudes measured on sample text.
#pragma once
#include <vector>

#include "coreml/export/sample_pass.h"
#include "coreml/mil/encoded.h"

namespace pd {

// Sample text does not show the largest possible activation, so a stream above kComfortable is scaled down to
// it. Above kMostMagnitude the export fails: matrix products were seen to become infinite near 32,752.
inline constexpr float kComfortable = 8192, kMostMagnitude = 32768;

// No scaling: for an export without a sample pass.
mil::RangeScales UnitScales(const ModelSpec& spec);
mil::RangeScales ChooseScales(const ModelSpec& spec, const std::vector<LayerSample>& layers);

// The largest magnitude of each layer in the exported program.
std::vector<float> ScaledMagnitudes(const ModelSpec& spec, const std::vector<LayerSample>& layers,
                                    const mil::RangeScales& scales);

}  // namespace pd
