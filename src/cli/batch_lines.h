// The lines that `batch` reads and writes: JSON in, JSON out.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cli/text_flags.h"
#include "engine/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pd::cli {

// What the lines have in common.
struct BatchSetting {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;  // nullptr: only plain prompts
  TextFlags flags;                           // for what a line does not say
  bool raw = false;                          // "prompt" is continued as plain text
  int prefill_chunk = 512;
};

// One line as a request, and what is needed to write its answer.
struct BatchTask {
  Request request;
  std::vector<std::string> stops;
  bool continues = false;        // the text goes on where a plain prompt ended
  std::optional<uint64_t> seed;  // when it matters
};

// {"prompt": "..."} or {"messages": [{"role": ..., "content": ...}, ...]}, and any of "id", "raw",
// "max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop" (a string or several),
// "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias" ({"17": -2.5}). Throws
// kBadRequest for whatever else it is, naming `where`; kUnsupported for messages without a template.
BatchTask ReadBatchLine(std::string_view line, const std::string& where, const BatchSetting& setting,
                        Json& id);

// One line of output; `number` is the input line's, from 1, `digest` of its bytes.
std::string BatchAnswer(int number, uint64_t digest, const Json& id, const BatchTask& task,
                        const std::string& text, const RequestResult& result);
std::string BatchError(int number, uint64_t digest, const Json& id, const Failure& failure);

// Whether `line` is the answer to this input line.
bool IsBatchAnswer(std::string_view line, int number, uint64_t digest);

}  // namespace pd::cli
