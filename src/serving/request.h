// A request to the engine, and its result.
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
  int context = 0;          // size limit of prompt and text together, in tokens; 0: the model's
  int prefill_chunk = 512;  // tokens prefilled and handed over at a time
  double timeout_ms = 0;    // from Submit; 0: none. Tokens sampled before the timeout are kept
  // True: the request fails when the prefill device cannot prefill it (kUnsupported). False: the decode
  // device computes the prompt, as it always does after other failures of a prefill device.
  bool prefill_is_named = false;
};

// The limits of a request on a model.
struct RequestPlan {
  int max_tokens = 0;  // Request::max_tokens, clamped to the context
  int capacity = 1;    // of the slot, in tokens; the last sampled token never enters it
  Variant variant;
};

// Throws kBadRequest for an empty prompt, one that does not fit the context, or settings out of range.
RequestPlan PlanRequest(const ModelSpec& spec, const Request& request);

enum class FinishReason : uint8_t {
  kStop,       // an end token, or the sink wanted no more
  kLength,     // max_tokens, or the context is full
  kCancelled,  // tokens sampled before are kept
  kTimeout,    // tokens sampled before are kept
  kError,      // see RequestResult::failure
};
const char* Name(FinishReason reason);  // "stop", "length", "cancelled", "timeout", "error"

// An Error as data, to pass between threads.
struct Failure {
  ErrorKind kind = ErrorKind::kDevice;
  std::string message;
};
// The exception being handled. Call in a catch block only.
Failure CurrentFailure();

// Times are wall time in milliseconds; zero for what did not happen.
struct RequestStats {
  double queued_ms = 0;   // from Submit until room was found
  int cached_tokens = 0;  // of the prompt, from the prefix cache
  // The device that was to compute the prompt; empty when there was no room for its session (see fallback).
  std::string prefill_device;
  // That device is the decode device, which computes into the slot itself: nothing is handed over.
  bool direct = false;
  std::string prefill_why;  // the choice in words; empty when there was none
  std::string fallback;     // not empty: why the decode device took over from the prefill device
  int prefill_tokens = 0;   // by the prefill device. The prompt's last token is the first decode row
  double prefill_ms = 0;
  size_t handoff_bytes = 0;  // keys and values imported into the slot, from the cache too
  double handoff_ms = 0;
  int tail_tokens = 0;  // of the prompt, computed by the decode device after another prefill device
  double tail_ms = 0;
  int decode_tokens = 0;
  double decode_ms = 0;       // from the first decode step until the last token is known
  double first_token_ms = 0;  // from Submit until the first token is known; 0 without one
  double total_ms = 0;        // from Submit to the end
  // This request's share of the devices' energy; nullopt where nothing measures it. The tail counts as
  // prefill.
  std::optional<double> prefill_joules, handoff_joules, decode_joules;
};

struct RequestResult {
  std::vector<TokenId> tokens;  // all sampled tokens; an end token is the last
  FinishReason finish = FinishReason::kLength;
  Failure failure;  // with kError
  RequestStats stats;
};

}  // namespace pd
