// Chips as published: figures with their sources, and what they predict.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/cost_model.h"
#include "engine/roofline.h"
#include "model/spec.h"

namespace pd {

// A published figure, in SI units.
struct Figure {
  double value = 0;
  std::string source, confidence;  // "high", "medium" or "low"
};

// Somebody's measurement on the chip.
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
    // peak: what it cannot exceed. prefill: operations a second that prompts were seen to reach. chunk: ms of
    // a call besides. share: of the bandwidth that decode reaches. layer: ms of a layer in a decode step
    // besides.
    Figure peak_flops, prefill_flops, chunk_ms, bandwidth_share, layer_ms;
  } gpu;
  struct Ane {
    Figure peak_flops, prefill_flops, chunk_ms, bandwidth;
    Figure slowdown;  // of the GPU's decode while it works
  } ane;
  std::vector<Measurement> measurements;
};

// Those of profiles/, in the order of their names. Throws kCorruptFile for one that physics does not allow.
const std::vector<ChipProfile>& PublishedChips();
ChipProfile ReadChip(std::string_view json, const std::string& id);
// By id or name, "apple-" and case aside. Throws kNotFound, listing all.
const ChipProfile& FindChip(std::string_view name);

// The Neural Engine as unit 0 with 16-bit weights, the GPU decoding with weights of `bits` bits.
MachineCosts CostsOf(const ChipProfile& chip, const ModelSpec& spec, const std::string& model, double bits);

// What the chip is predicted to do where somebody measured, in the measurement's unit.
double Predicted(const ChipProfile& chip, const Measurement& measurement);

// The fastest published chip's, or one chip's, by the words in the name that a table gives a device: "gpu",
// "MLX", "ANE", "M4 Max GPU", "cpu". Throws kBadRequest.
DevicePeak PeakOf(std::string_view device);

}  // namespace pd
