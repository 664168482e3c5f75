// How text is generated: the flags that commands share.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sample/sampler.h"

namespace pd::cli {

struct TextFlags {
  int max_tokens = 256;
  int context = 0;  // tokens of prompt and text together; 0: the model's
  SampleSpec sample;
  std::optional<uint64_t> seed;
  std::vector<std::pair<TokenId, float>> bias;
  std::vector<std::string> stops;
};

// Adds -n,--max-tokens, --ctx, --stop, --temp, --top-k and their like.
void AddTextFlags(CLI::App& command, TextFlags& flags);

// Throws kBadRequest.
void CheckTextFlags(const TextFlags& flags);

}  // namespace pd::cli
