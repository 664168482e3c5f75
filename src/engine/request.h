// What a caller asks of the engine, and what it gets back.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "model/spec.h"
#include "sample/sampler.h"

namespace pd {

using RequestId = uint64_t;

struct Request {
  std::vector<TokenId> prompt = {};      // at least one token
  int max_tokens = 0;                    // 0 computes the prompt and generates nothing
  std::vector<TokenId> end_tokens = {};  // the text ends when one of them is sampled
  SampleSpec sample = {};                // bias, draw, penalties.context and prompt_tokens are filled in
  std::vector<std::pair<TokenId, float>> bias = {};  // added to logits
  int context = 0;          // tokens of prompt and text together at most; 0: what the model allows
  int prefill_chunk = 512;  // tokens prefilled and handed over at a time
  double timeout_ms = 0;    // from Submit; 0: none. Tokens sampled until then stand
  // A device that says it cannot prefill this request (kUnsupported) fails it. False: the decode device takes
  // the prompt then, as it always does after other failures of a prefill device.
  bool prefill_is_named = false;
};

// How far a request may go.
struct RequestPlan {
  int max_tokens = 0;  // what the request asks for, cut to what the context holds
  int capacity = 1;    // tokens in the slot at most; the last token sampled never enters it
  Variant variant;
};

// Throws kBadRequest for an empty prompt, one that does not fit the context, or settings out of range.
RequestPlan PlanRequest(const ModelSpec& spec, const Request& request);

enum class FinishReason : uint8_t {
  kStop,       // an end token, or the sink had enough
  kLength,     // max_tokens, or the context is full
  kCancelled,  // tokens sampled until then stand
  kTimeout,    // likewise
  kError,      // RequestResult::failure says what
};
const char* Name(FinishReason reason);  // "stop", "length", "cancelled", "timeout", "error"

// An Error as data, for threads that may not throw.
struct Failure {
  ErrorKind kind = ErrorKind::kDevice;
  std::string message;
};
// Of the exception being handled.
Failure CurrentFailure();

// Wall time in milliseconds; zero for what did not happen.
struct RequestStats {
  double queued_ms = 0;        // from Submit until room was found
  int cached_tokens = 0;       // of the prompt, from the prefix cache
  std::string prefill_device;  // that was chosen; empty: the decode device
  std::string prefill_why;     // the choice in words; empty when there was none
  std::string fallback;        // not empty: why the decode device took over from the prefill device
  int prefill_tokens = 0;      // by the prefill device. The prompt's last token is the first decode row
  double prefill_ms = 0;
  size_t handoff_bytes = 0;  // of keys and values
  double handoff_ms = 0;
  int tail_tokens = 0;  // of the prompt, computed by the decode device
  double tail_ms = 0;
  int decode_tokens = 0;
  double decode_ms = 0;       // from the first decode step until the last token is known
  double first_token_ms = 0;  // from Submit until the first token is known; 0 without one
  double total_ms = 0;        // from Submit to the end
  // The devices' energy meanwhile, this request's part of it; absent where nothing measures it.
  std::optional<double> prefill_joules, handoff_joules, decode_joules;  // prefill: with the tail
};

// The same, a prompt that only the decode device was asked to read as its prefill and not as a tail.
RequestStats WithDirectPrefill(RequestStats stats, const std::string& decode_device);

struct RequestResult {
  std::vector<TokenId> tokens;  // all that were sampled; an end token stands last
  FinishReason finish = FinishReason::kLength;
  Failure failure;  // with kError
  RequestStats stats;
};

}  // namespace pd
