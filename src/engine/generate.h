// One request from its prompt to its last token: prefill on one device, handoff, decode on another.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/device.h"

namespace pd {

struct GenerateRequest {
  std::span<const TokenId> prompt = {};      // at least one token; must live until Generate returns
  int max_tokens = 0;                        // 0 computes the prompt and generates nothing
  std::span<const TokenId> end_tokens = {};  // the text ends when one of them is sampled
  SampleSpec sample = {};                    // draw, penalties.context and prompt_tokens are filled in here
  int context = 0;          // tokens of prompt and text together at most; 0: what the model allows
  int prefill_chunk = 512;  // tokens prefilled and handed over at a time
  // Becomes true when somebody wants the request to end. Looked at between chunks and steps.
  const std::atomic<bool>* cancel = nullptr;
};

enum class FinishReason : uint8_t {
  kStop,       // an end token, or the sink had enough
  kLength,     // max_tokens, or the context is full
  kCancelled,  // request.cancel; tokens sampled until then stand
};
const char* Name(FinishReason reason);  // "stop", "length", "cancelled"

// Wall time in milliseconds.
struct GenerateStats {
  int prefill_tokens = 0;  // by the prefill device. The prompt's last token is the first decode row
  double prefill_ms = 0;
  size_t handoff_bytes = 0;  // of keys and values
  double handoff_ms = 0;
  int tail_tokens = 0;  // of the prompt, beyond what the prefill device takes: computed by the decode device
  double tail_ms = 0;
  int decode_tokens = 0;
  double decode_ms = 0;
  double first_token_ms = 0;  // from the call of Generate until the first token is known; 0 without one
};

struct GenerateResult {
  std::vector<TokenId> tokens;  // all that were sampled; an end token stands last
  FinishReason finish = FinishReason::kLength;
  GenerateStats stats;
};

// Called with each token but end tokens, in order, on the calling thread. False: enough, finish with kStop.
using TokenSink = std::function<bool(const Sampled&)>;

// Throws kBadRequest for an empty prompt, one that does not fit the context, or settings out of range;
// kUnsupported when the prefill device refuses; what the devices and the sink throw. The slot is closed in
// every case. Both devices must hold the model that `spec` describes.
GenerateResult Generate(const ModelSpec& spec, PrefillDevice& prefill, DecodeDevice& decode,
                        const GenerateRequest& request, const TokenSink& sink);

}  // namespace pd
