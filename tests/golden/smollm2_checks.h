// The default model against transformers' run of the same weights, teacher-forced over its own greedy texts
// (tests/data/smollm2).
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace pd::test {

std::filesystem::path SmolLM2Data(const char* name);

struct SmolLM2Devices {
  std::unique_ptr<DecodeDevice> reference, cpu;
  std::function<std::unique_ptr<DecodeDevice>()> open_cpu;  // another instance over the same weights
  double cpu_bound = 0;  // |cpu - reference|_2 / |reference|_2 of a row of logits
};
// Loaded once for all tests of the process: dequantising to double takes a second and 1 GB.
SmolLM2Devices& LoadSmolLM2();

// The model on another device of this build, by its name in AllDevices(); an empty function when the build
// has none.
std::function<std::unique_ptr<DecodeDevice>()> LoadSmolLM2On(const std::string& device);

// Logits of every position of one text.
Logits AllLogits(DecodeDevice& device, std::span<const TokenId> ids);
std::span<const float> Row(const Logits& logits, int row);
double LogSumExp(std::span<const float> row);

// The named prompts on the reference and the cpu: the reference's choice equals transformers' at every
// position; the cpu's differs only between logits that its bound cannot tell apart, at 2 % of positions at
// most, with a mean KL divergence from the reference below 1e-3. One row in a hundred may be beyond the
// bound, none beyond three times the bound.
void CheckPrompts(const std::vector<std::string>& names);

// The named prompts on another device: at every position it chooses what the cpu chooses, or, at 2 % of them
// at most, what the cpu's bound cannot tell from it.
void CheckAgainstCpu(DecodeDevice& device, const std::vector<std::string>& names);

}  // namespace pd::test
