// The response to each failure: one table, for every code at every stage.
#pragma once
#include <span>

#include "coreml/runtime/status.h"

namespace pd {

enum class Remedy : uint8_t {
  kRetry,            // repeat
  kFreeAndRetry,     // unload all other functions, then repeat
  kReload,           // load the function again from its compiled model, then repeat
  kRecompile,        // discard the compiled model, compile the package again, restart at kLoad
  kIgnore,           // continue without the answer: nothing depends on it
  kFallBack,         // this call fails and the decode device computes its tokens; the function stays enabled
  kDisableFunction,  // as kFallBack, and the function is disabled; others stay
  kDisableDevice,    // as kFallBack, and all functions of the bundle are disabled
  kCancel,           // the caller cancelled: no conclusion is drawn
};
const char* Name(Remedy remedy);  // "retry", "free_and_retry", ...

// Remedies for a failure, in the order they are tried within one call; the last one ends the call. kReload
// and kRecompile are used at most once per call, whichever stage asks for them.
struct FailureRule {
  Stage stage;
  Code code;
  Remedy remedies[3];  // the last is repeated to fill the array
};
std::span<const FailureRule> FailureRules();

// The remedy when `attempt` (0: the first) failed. Defined for all inputs: failures without a rule fall back.
Remedy RemedyFor(Stage stage, Code code, int attempt);

// Consecutive calls of a function that may fall back before it is disabled: a function that always fails
// would delay every request.
inline constexpr int kMostFallbacksInARow = 3;

}  // namespace pd
