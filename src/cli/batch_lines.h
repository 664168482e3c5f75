// The lines that `batch` reads and writes: JSON in, JSON out.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cli/chat_flags.h"
#include "session/text_engine.h"

namespace pd::cli {

// What the lines have in common.
struct BatchSetting {
  const TextCodec* codec = nullptr;
  TextSettings text;  // for what a line does not say
  bool raw = false;   // "prompt" is continued as plain text
  ChatVariables chat = {};
};

// {"prompt": "..."} or {"messages": [{"role": ..., "content": ...}, ...]}, and any of "id", "raw", "tools"
// (instead of the setting's), "chat_template_kwargs" (on top of them), "max_tokens", "temperature", "top_k",
// "top_p", "min_p", "seed", "stop" (a string or several), "repetition_penalty", "presence_penalty",
// "frequency_penalty", "logit_bias" ({"17": -2.5}). A key that is null is absent. Throws kBadRequest for
// anything else, naming `where`; kUnsupported for messages without a template.
// `id` is set to the line's "id" as it is written there, once the line is known to be JSON, else it stays as
// it is.
TextRequest ReadBatchLine(std::string_view line, const std::string& where, const BatchSetting& setting,
                          std::string& id);

// What an answer says about its line.
struct BatchLine {
  int number = 0;       // of the input line, from 1
  uint64_t digest = 0;  // of its bytes
  std::string id = {};  // JSON text; empty: none
  size_t prompt_tokens = 0;
  Json run = Json::object();  // what the answer says of the run (AnswerFile::RunOf)
};

// A question or an answer, with 0 for each number of its id: they may be too large for any parser. Throws
// what ParseJson does.
Json ParseBatchLine(std::string_view line, const std::string& where);

// One line of output.
std::string BatchAnswer(const BatchLine& line, const TextAnswer& answer);
std::string BatchError(const BatchLine& line, const Failure& failure);

// What the answer to this input line begins with, whatever it is.
std::string BatchAnswerStart(int number, uint64_t digest);

}  // namespace pd::cli
