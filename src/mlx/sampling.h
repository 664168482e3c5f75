// Chooses tokens on the device, by the definitions of sample/sampler.h.
#pragma once
#include <span>

#include "mlx/kernels.h"
#include "sample/sampler.h"

namespace pd {

// Whether the device can choose this row's token itself. Penalties, bias and alternatives need a history and
// lists that only the host has: a step with such a row is sampled on the host, which waits for its logits.
bool SamplesOnDevice(const SampleSpec& spec);

// logits [R, V], one rule per row.
MlxChoice SampleRows(MlxKernels& kernels, const mx::array& logits, std::span<const SampleSpec> sample);

}  // namespace pd
