// What running texts feel while a long prompt is read.
#pragma once
#include <functional>
#include <vector>

#include "engine/engine.h"

namespace pd {

struct OverlapOptions {
  int streams = 4, prompt = 4000, chunk = 512;
  int text = 4096;         // tokens of a text at most, which is followed by another then
  double alone_ms = 1500;  // how long texts are watched before and after the prompt
};

// Of all texts together over a stretch of time.
struct StreamRates {
  double tokens_per_s = 0;
  double context = 0;           // tokens of a text then, on average
  std::vector<double> gaps_ms;  // between tokens of a text, ascending
};

struct OverlapResult {
  // While the prompt is read.
  StreamRates beside;
  // Without it, before and after. A step takes longer the longer the texts are, so the rate and the context
  // are those at which the texts would be as long as beside the prompt: a step's time lies on the line
  // between before and after.
  StreamRates alone;
  double first_token_ms = 0;  // of the prompt
  double decode_ratio = 0;    // beside over alone
  RequestId request = 0;      // the prompt
  RequestStats prompt;
};

// Throws kBadRequest when the prompt does not fit the model's context; what requests throw.
// `keep_going` is asked now and then and may throw.
OverlapResult MeasureOverlap(Engine& engine, const OverlapOptions& options,
                             const std::function<void()>& keep_going);

}  // namespace pd
