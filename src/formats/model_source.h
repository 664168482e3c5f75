// A model opened but not loaded: its spec, and where each weight lies in which file.
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "formats/gguf.h"
#include "model/registry.h"
#include "model/tensor.h"

namespace pd {

struct ModelSource {
  std::filesystem::path path;  // as given: a .gguf file or a folder with config.json
  std::string family;
  ModelSpec spec;
  Weights<TensorView> tensors;           // views that keep their mappings alive
  std::shared_ptr<const GgufFile> gguf;  // when it is a GGUF: its metadata holds the tokenizer; else nullptr

  // WeightsDigest. The first call reads all weights; copies share what it found. Any thread may call.
  uint64_t Digest() const;

 private:
  struct DigestOnce {
    std::once_flag flag;
    uint64_t value = 0;
  };
  std::shared_ptr<DigestOnce> digest_ = std::make_shared<DigestOnce>();
};

// Opens a GGUF file or a Hugging Face folder (config.json, model.safetensors or shards with an index).
// Strict: every config key is read or known to be harmless, every tensor is claimed once with the shape the
// spec asks for, leftovers are an error. Throws kNotFound, kCorruptFile, kUnsupported.
ModelSource OpenModel(const std::filesystem::path& path);

}  // namespace pd
