// What is done about a failure: one table, for every code at every stage.
#pragma once
#include <span>

#include "coreml/runtime/status.h"

namespace pd {

enum class Remedy : uint8_t {
  kRetry,            // the same once more
  kFreeAndRetry,     // let go of every other function, then the same once more
  kReload,           // load the function anew from its compiled model, then the same once more
  kRecompile,        // throw the compiled model away, compile the package anew, start again at kLoad
  kIgnore,           // go on without the answer: nothing depends on it
  kFallBack,         // this call fails; the decode device computes what it would have. The function stays
  kDisableFunction,  // as kFallBack, and the function is not tried again; others are
  kDisableDevice,    // as kFallBack, and no function of the bundle is tried again
  kCancel,           // the caller asked for the end: nothing is concluded
};
const char* Name(Remedy remedy);  // "retry", "free_and_retry", ...

// Remedies for a failure, in the order they are tried within one call; the last one ends the call. kReload
// and kRecompile count once for a call, whichever stage asked for them.
struct FailureRule {
  Stage stage;
  Code code;
  Remedy remedies[3];  // filled up with the last
};
std::span<const FailureRule> FailureRules();

// The remedy when `attempt` (0: the first) failed. Total: what no rule names falls back.
Remedy RemedyFor(Stage stage, Code code, int attempt);

// Calls of a function that may fall back one after the other before it is disabled: what fails each time
// would cost each request its time.
inline constexpr int kMostFallbacksInARow = 3;

}  // namespace pd
