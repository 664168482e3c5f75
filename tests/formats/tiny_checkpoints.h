// One tiny random model of each family as a Hugging Face folder and as a GGUF file, written independently of
// the loaders: names, row orders and gains are spelt out here once more.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/formats/writers.h"
#include "tests/temp_folder.h"

namespace pd::test {

struct TinyTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct TinyCheckpoint {
  Json config;                                // config.json
  std::map<std::string, TinyTensor> tensors;  // by Hugging Face name
  std::vector<GgufEntry> metadata;            // of the same model
  std::vector<std::string> permuted;          // GGUF names of what converters permute
  int heads = 0, kv_heads = 0;
  float gain_offset = 0;  // what converters add to the gains of norms
};

TinyCheckpoint TinyLlama();   // untied head, all biases, two heads to a KV head
TinyCheckpoint TinyQwen2();   // tied head
TinyCheckpoint TinyQwen3();   // head_dim of its own
TinyCheckpoint TinyGemma3();  // local and global layers

SafetensorsSpec AsSafetensors(const TinyCheckpoint& model);
GgufSpec AsGguf(const TinyCheckpoint& model);
// Writes config.json and model.safetensors.
void WriteFolder(const TinyCheckpoint& model, const TempFolder& folder);

// The GGUF name of a Hugging Face tensor.
std::string GgufName(const std::string& name);

}  // namespace pd::test
