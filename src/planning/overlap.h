// Measures how running texts slow down while a long prompt is computed.
#pragma once
#include <functional>
#include <vector>

#include "serving/engine.h"

namespace pd {

struct OverlapOptions {
  int streams = 4, prompt = 4000, chunk = 512;
  int text = 4096;         // length limit of a text in tokens; then a new text starts
  double alone_ms = 1500;  // how long texts are measured before and after the prompt
};

// Of all texts together, over an interval.
struct StreamRates {
  double tokens_per_s = 0;
  double context = 0;           // mean length of the texts, in tokens
  std::vector<double> gaps_ms;  // between tokens of a text, ascending
};

struct OverlapResult {
  // While the prompt is computed.
  StreamRates beside;
  // Before and after it. Steps take longer the longer the texts are, so the rate is interpolated, linearly in
  // the time of a step, to the context of `beside`.
  StreamRates alone;
  double first_token_ms = 0;  // of the prompt
  double decode_ratio = 0;    // beside over alone
  RequestId request = 0;      // the prompt
  RequestStats prompt;
};

// Throws kBadRequest when the prompt does not fit the model's context, and what requests throw. `keep_going`
// is called now and then; it may throw to end the measurement.
OverlapResult MeasureOverlap(Engine& engine, const OverlapOptions& options,
                             const std::function<void()>& keep_going);

}  // namespace pd
