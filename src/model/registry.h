// The families: each is one file in families/ and one line in registry.cc.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "model/weights.h"

namespace pd {

struct Family {
  const char* name;                      // "llama"
  std::vector<std::string> model_types;  // config.json's model_type that it reads
  // Reads every key or ignores it by name; the caller calls config.Done(). Throws kUnsupported for
  // mathematics that we do not have.
  ModelSpec (*read_config)(JsonReader& config);
  // The tensor's name in a Hugging Face checkpoint.
  std::string (*tensor_name)(const WeightInfo& info);
  // The norms whose gains a Hugging Face checkpoint holds minus one: the loader adds it. nullptr: none.
  bool (*gain_minus_one)(const WeightInfo& gain) = nullptr;
  // What some checkpoints put in front of these names, and what stands for it in them: {"language_model.",
  // ""}.
  std::vector<std::pair<std::string, std::string>> renamed_prefixes = {};
  // Tensors that a checkpoint may hold and that change nothing; '*' stands for any characters.
  std::vector<std::string> ignored_tensors = {};
};

// nullptr when nobody reads this model_type.
const Family* FindFamily(std::string_view model_type);
// Every model_type that some family reads, for messages.
std::vector<std::string> KnownModelTypes();

}  // namespace pd
