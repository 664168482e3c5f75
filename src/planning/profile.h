// Published figures of chips with their sources, and what they predict.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"
#include "planning/cost_model.h"
#include "planning/roofline.h"

namespace pd {

// A published figure, in SI units.
struct Figure {
  double value = 0;
  std::string source, confidence;  // "high", "medium" or "low"
};

// A published measurement on the chip.
struct Measurement {
  std::string model, device, phase;  // a known shape; "gpu" or "ane"; "prefill" or "decode"
  double bits = 16;                  // of a weight
  int tokens = 0;                    // of the prompt; of the context
  double value = 0;
  std::string unit;  // "ms" or "tok/s"
  std::string source, note;
};

struct ChipProfile {
  std::string id, name;  // "apple-m4-max", "Apple M4 Max"
  Figure memory_bandwidth;
  struct Gpu {
    // peak: the upper bound. prefill: operations a second that prompts reach. chunk: overhead of a call in
    // ms. share: of the bandwidth that decode reaches. layer: overhead of a layer in a decode step, in ms.
    Figure peak_flops, prefill_flops, chunk_ms, bandwidth_share, layer_ms;
  } gpu;
  struct Ane {
    Figure peak_flops, prefill_flops, chunk_ms, bandwidth;
    Figure slowdown;  // of the GPU's decode steps meanwhile
  } ane;
  std::vector<Measurement> measurements;
};

// The files of profiles/, in order of name. Throws kCorruptFile for one with impossible figures.
const std::vector<ChipProfile>& PublishedChips();
ChipProfile ReadChip(std::string_view json, const std::string& id);
// By id or name, ignoring case and "apple-". Throws kNotFound, listing all.
const ChipProfile& FindChip(std::string_view name);

// The Neural Engine as unit 0 with 16-bit weights, the GPU decoding with weights of `bits` bits.
MachineCosts CostsOf(const ChipProfile& chip, const ModelSpec& spec, const std::string& model, double bits);

// What the chip is predicted to do where somebody measured, in the measurement's unit.
double Predicted(const ChipProfile& chip, const Measurement& measurement);

// The peak of a device by the words of its name in a table: of one chip ("M4 Max GPU"), or of the fastest
// published chip ("gpu", "MLX", "ANE", "cpu"). Throws kBadRequest.
DevicePeak PeakOf(std::string_view device);

}  // namespace pd
