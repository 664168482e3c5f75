// The lines that `batch` reads and writes: JSON in, JSON out.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "session/text_engine.h"

namespace pd::cli {

// What the lines have in common.
struct BatchSetting {
  const TextCodec* codec = nullptr;
  TextSettings text;  // for what a line does not say
  bool raw = false;   // "prompt" is continued as plain text
};

// {"prompt": "..."} or {"messages": [{"role": ..., "content": ...}, ...]}, and any of "id", "raw",
// "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop" (a string or several),
// "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias" ({"17": -2.5}). Throws
// kBadRequest for anything else, naming `where`; kUnsupported for messages without a template.
// `id` is set to the line's "id" as JSON text as soon as it is known, else it stays as it is.
TextRequest ReadBatchLine(std::string_view line, const std::string& where, const BatchSetting& setting,
                          std::string& id);

// What an answer says about its line.
struct BatchLine {
  int number = 0;       // of the input line, from 1
  uint64_t digest = 0;  // of its bytes
  std::string id = {};  // as JSON text; empty: none
  size_t prompt_tokens = 0;
};

// One line of output.
std::string BatchAnswer(const BatchLine& line, const TextAnswer& answer);
std::string BatchError(const BatchLine& line, const Failure& failure);

// Whether `line` is the answer to this input line.
bool IsBatchAnswer(std::string_view line, int number, uint64_t digest);

}  // namespace pd::cli
