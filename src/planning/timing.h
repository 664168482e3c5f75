// Timing of single devices, on the calling thread.
#pragma once
#include <functional>
#include <vector>

#include "device/device.h"

namespace pd {

// Milliseconds of several runs. A first run comes before them and counts only as first_ms.
struct Timing {
  double median_ms = 0, least_ms = 0, most_ms = 0;
  double first_ms = 0;
};
// At least `least` runs, and more until they took `ms` together.
struct Repeat {
  int least = 5;
  double ms = 0;
};
// `run` returns the milliseconds of the part that counts.
Timing TimeRuns(const Repeat& repeat, const std::function<double()>& run);

// Tokens of a prompt that is only timed: any would do.
std::vector<TokenId> MeaninglessTokens(int count, int vocab);

// All throw what the device throws.
// `count` tokens of a prompt after `history` tokens, without logits; at most `chunk` at a time, and no more
// than the device takes.
Timing TimePrompt(DecodeDevice& device, int vocab, int history, int count, int chunk, const Repeat& repeat);
Timing TimePrefill(PrefillDevice& device, int vocab, int history, int count, int chunk, const Repeat& repeat);
// Whether the device takes a whole prompt of `count` tokens in chunks of that size.
bool TakesPrompt(const PrefillDevice& device, int count, int chunk);
// Decode steps of `rows` sequences with `context` tokens each.
Timing TimeStep(DecodeDevice& device, int vocab, int rows, int context, int runs);
// Imports of a segment that starts at token 0.
Timing TimeImport(DecodeDevice& device, const KvSegment& segment, int runs);

}  // namespace pd
