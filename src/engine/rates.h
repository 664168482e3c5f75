// Statistics of a request as rates, each behind the roofline gate: a number that cannot be true is not a
// fact.
#pragma once
#include "engine/request.h"
#include "engine/roofline.h"
#include "reference/count_ops.h"

namespace pd {

// A phase's rates. 0: unknown, or the phase had nothing to do.
struct PhaseRates : RooflineRates {
  double tokens_per_s = 0;
};

// Operations a second that no device of this kind can exceed, from above and generously; 0: unknown.
double PeakFlops(const PhysicalDevice& device, int threads);

// Bytes of the weights that a chunk without logits reads: all but the head's share.
double LayerBytes(const ModelSpec& spec, size_t weight_bytes);
// Bytes of the keys and values that `cost` reads, as the device holds them.
double KvBytes(const ModelSpec& spec, const Cost& cost, const DeviceInfo& device);

PhaseRates PrefillRates(const ModelSpec& spec, const RequestStats& stats, double peak_flops);

// `bandwidth` in bytes a second, of a working set of the model's size (engine/bandwidth.h); 0: unknown.
PhaseRates DecodeRates(const ModelSpec& spec, const RequestStats& stats, const DeviceInfo& device,
                       double peak_flops, double bandwidth);

}  // namespace pd
