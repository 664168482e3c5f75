// What `run` says about a request: a table for people, an object for programs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "planning/rates.h"

namespace pd::cli {

// A token of the text with its probability, for --logprobs.
struct TokenReport {
  Sampled sampled;
  std::string piece;                    // what the token adds to the text, as the model spells it
  std::vector<std::string> top_pieces;  // likewise of sampled.top
};

struct RunReport {
  std::string model;
  std::string text;
  RequestResult result;
  int prompt_tokens = 0;
  std::optional<uint64_t> seed;  // when it mattered
  std::vector<TokenReport> logprobs;
  double load_ms = 0;
  std::string prefill_device, decode_device;
  PhaseRates prefill, decode;
  double bandwidth = 0;  // of the machine, bytes a second; 0: unknown
};

std::string ToTable(const RunReport& report);

// One line of ToJson(report).
std::string ToJsonLine(const RunReport& report);
// Phases have joules, null where nothing measures them; prefill.why says how its device was chosen, unless it
// was named. text, tokens, token_ids, prompt_tokens, finish_reason, load.ms, prefill.{device, tokens, ms,
// tokens_per_s}, with a prefix from the cache prefill.cached_tokens, when the decode device computed some of
// the prompt prefill.tail.{device, tokens, ms} and perhaps prefill.fallback; handoff.{bytes, ms},
// decode.{device, tokens, ms, tokens_per_s}, ttft_ms, ... Rates that are unknown or impossible are null.
Json ToJson(const RunReport& report);

// One line that ends with a newline. Halves of characters, which pieces of text may hold, become U+FFFD.
std::string ToLine(const Json& json);

}  // namespace pd::cli
