// From logits to a token, on the host. Devices that sample follow the same definitions.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/rows.h"

namespace pd {

// Applied to logits before anything else, in this order.
struct Penalties {
  // 1: off. Divides positive and multiplies negative logits of every token that occurred (Hugging Face).
  float repetition = 1;
  // 0: off. Presence is subtracted once for a generated token that occurred, frequency once per occurrence
  // (OpenAI).
  float presence = 0, frequency = 0;
  // Tokens of the sequence known when the step is submitted: prompt, then generated ones. The device adds
  // tokens that it sampled and the host has not seen yet. Must live until Submit returns.
  std::span<const TokenId> context = {};
  int prompt_tokens = 0;  // prompt part of context: presence and frequency ignore it
  bool Off() const { return repetition == 1 && presence == 0 && frequency == 0; }
};

// How one row's token is chosen: penalties and bias, then temperature, top_k, top_p, min_p, then a draw.
struct SampleSpec {
  float temperature = 0;  // 0: the largest logit, the lowest id among equals; filters have no effect
  int top_k = 0;          // keep the k largest; 0: all
  float top_p = 1;        // keep the smallest set of largest probabilities that reaches p, at least one
  float min_p = 0;        // keep probabilities of at least min_p times the largest
  Penalties penalties = {};
  std::span<const std::pair<TokenId, float>> bias = {};  // added to logits; must live until Submit returns
  uint64_t seed = 0,
           draw = 0;  // the draw is a function of (seed, draw) alone: draw is the token's index in its text
  int top_logprobs = 0;  // how many alternatives to report
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural logarithm
};

struct Sampled {
  TokenId token = 0;
  float logprob = 0;  // of the token, in the distribution after penalties and bias, at temperature 1
  std::vector<TokenLogprob> top;  // the top_logprobs largest of that distribution, descending
};

// Throws kBadRequest naming the field: temperature in [0, 100], top_p in (0, 1], min_p in [0, 1], top_k >= 0,
// repetition in [0.001, 1000], presence and frequency within 1000 of 0, context and bias ids within the
// vocabulary, bias values within 1e6 of 0, 0 <= top_logprobs <= 20.
void CheckSampleSpec(const SampleSpec& spec, int vocab);

// Chooses from `logits` [vocab]. Not thread-safe. Keeps scratch memory, so that a step allocates nothing once
// warm (unless top_logprobs are asked for).
class Sampler {
 public:
  // `spec` has passed CheckSampleSpec. `unseen`: tokens of the sequence after spec.penalties.context. Logits
  // of minus infinity are never chosen. Throws kDevice for NaN, plus infinity, or when no token can be
  // chosen: something upstream is broken.
  Sampled Sample(std::span<const float> logits, const SampleSpec& spec, std::span<const TokenId> unseen = {});

 private:
  std::span<const float> Adjusted(std::span<const float> logits, const SampleSpec& spec,
                                  std::span<const TokenId> unseen);
  TokenId Draw(std::span<const float> logits, float largest, const SampleSpec& spec);
  std::span<const TokenId> Candidates(std::span<const float> logits, const SampleSpec& spec,
                                      std::span<const float> weights);
  std::span<TokenId> Shortlist(std::span<const float> logits, const SampleSpec& spec,
                               std::span<const float> weights, double* total);
  std::span<TokenId> Largest(std::span<const float> logits, size_t count);

  std::vector<float> adjusted_;             // [vocab]: logits after penalties and bias
  std::vector<int32_t> total_, generated_;  // [vocab]: occurrences; all zero between calls
  std::vector<TokenId> order_;              // [vocab]: token ids, the candidates first
  std::vector<float> weights_;              // [vocab]: relative probabilities
};

}  // namespace pd
