// Turns a request's statistics into rates, and checks them against what the device can do.
#pragma once
#include "planning/roofline.h"
#include "reference/count_ops.h"
#include "serving/request.h"

namespace pd {

// The rates of a phase. 0: unknown, or the phase did nothing.
struct PhaseRates : RooflineRates {
  double tokens_per_s = 0;
};

// A generous upper bound of the device's operations a second; 0: unknown.
double PeakFlops(const PhysicalDevice& device, int threads);

// Bytes of the weights that a chunk without logits reads: all weights but the head's.
double LayerBytes(const ModelSpec& spec, size_t weight_bytes);
// Bytes of the keys and values that `cost` reads, as the device holds them.
double KvBytes(const Cost& cost, const DeviceInfo& device);

PhaseRates PrefillRates(const ModelSpec& spec, const RequestStats& stats, double peak_flops);

// `bandwidth`: bytes a second that the machine reads of a working set of the model's size
// (planning/bandwidth.h); 0: unknown.
PhaseRates DecodeRates(const ModelSpec& spec, const RequestStats& stats, const DeviceInfo& device,
                       double peak_flops, double bandwidth);

}  // namespace pd
