// GGUF metadata as the config.json that the same model has as a Hugging Face folder, so that each family
// reads one form.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/gguf.h"
#include "model/weights.h"

namespace pd {

struct GgufConfig {
  Json config;
  bool interleaved_heads = false;         // rotation pairs of Q and K rows lie side by side
  std::vector<std::string> tensors_read;  // RoPE factors: part of the config now, no weights
};

// Covers the architectures llama, qwen2, qwen3 and gemma3. Strict: a key under the architecture's prefix that
// is not known is kUnsupported, a known one with a value we do not have too; a missing or mistyped one is
// kCorruptFile. What only the tensors tell comes from them: the vocabulary, whether the head is tied, biases,
// RoPE factors.
GgufConfig ReadGgufConfig(const GgufFile& gguf);

// The tensor's name in a GGUF file.
std::string GgufTensorName(const WeightInfo& info);

}  // namespace pd
