#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>

#include "base/error.h"
#include "sample/softmax.h"
#include "sample/uniform.h"

namespace pd {
namespace {

// The order of preference: larger logits first, the lower id among equals.
struct Before {
  std::span<const float> logits;
  bool operator()(TokenId a, TokenId b) const {
    const float x = logits[size_t(a)], y = logits[size_t(b)];
    return x > y || (x == y && a < b);
  }
};

bool CutsByRank(const SampleSpec& spec, size_t vocab) { return spec.top_k > 0 && size_t(spec.top_k) < vocab; }

}  // namespace

void CheckSampleSpec(const SampleSpec& spec, int vocab) {
  // Written so that NaN fails too.
  const auto require = [](bool ok, const char* field, double value, const char* remedy) {
    if (!ok) throw Fail(ErrorKind::kBadRequest, "{} is {}: give {}", field, value, remedy);
  };
  const auto token_ok = [&](TokenId id) { return id >= 0 && id < vocab; };
  const Penalties& p = spec.penalties;
  require(spec.temperature >= 0 && spec.temperature <= 100, "temperature", double(spec.temperature),
          "a number from 0 to 100");
  require(spec.top_k >= 0, "top_k", spec.top_k, "0 (off) or more");
  require(spec.top_p > 0 && spec.top_p <= 1, "top_p", double(spec.top_p),
          "a number above 0 and at most 1 (off)");
  require(spec.min_p >= 0 && spec.min_p <= 1, "min_p", double(spec.min_p), "a number from 0 (off) to 1");
  // The limits of penalties and bias keep adjusted logits far from infinity, so an infinity means a broken
  // device.
  require(p.repetition >= 0.001f && p.repetition <= 1000, "repetition penalty", double(p.repetition),
          "a number from 0.001 to 1000; 1 is off");
  require(std::abs(p.presence) <= 1000, "presence penalty", double(p.presence),
          "a number from -1000 to 1000");
  require(std::abs(p.frequency) <= 1000, "frequency penalty", double(p.frequency),
          "a number from -1000 to 1000");
  require(p.prompt_tokens >= 0 && size_t(p.prompt_tokens) <= p.context.size(), "prompt_tokens",
          p.prompt_tokens, "at most the number of tokens of the context");
  require(spec.top_logprobs >= 0 && spec.top_logprobs <= 20, "top_logprobs", spec.top_logprobs,
          "a number from 0 to 20");
  for (const auto& [id, value] : spec.bias)
    if (!token_ok(id) || !(std::abs(value) <= 1e6f))
      throw Fail(ErrorKind::kBadRequest,
                 "logit bias {} on token {}: give a number from -1e6 to 1e6 and a token from 0 to {}", value,
                 id, vocab - 1);
  if (p.Off()) return;
  for (TokenId id : p.context)
    if (!token_ok(id))
      throw Fail(ErrorKind::kBadRequest, "token {} of the context is outside the vocabulary of {}", id,
                 vocab);
}

// The logits after penalties and bias: `logits` itself when there are none.
std::span<const float> Sampler::Adjusted(std::span<const float> logits, const SampleSpec& spec,
                                         std::span<const TokenId> unseen) {
  const Penalties& p = spec.penalties;
  if (p.Off() && spec.bias.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  if (!p.Off()) {
    total_.resize(std::max(total_.size(), logits.size()));
    generated_.resize(total_.size());
    const auto prompt = p.context.first(size_t(p.prompt_tokens)), rest = p.context.subspan(prompt.size());
    for (TokenId id : prompt) ++total_[size_t(id)];
    for (const auto tokens : {rest, unseen})
      for (TokenId id : tokens) ++total_[size_t(id)], ++generated_[size_t(id)];
    // The first visit of a token handles it and zeroes its counts for the next call.
    for (const auto tokens : {p.context, unseen}) {
      for (TokenId id : tokens) {
        int32_t &total = total_[size_t(id)], &generated = generated_[size_t(id)];
        if (total == 0) continue;
        float& logit = adjusted_[size_t(id)];
        logit = logit > 0 ? logit / p.repetition : logit * p.repetition;
        if (generated > 0) logit -= p.presence + p.frequency * float(generated);
        total = generated = 0;
      }
    }
  }
  for (const auto& [id, value] : spec.bias) adjusted_[size_t(id)] += value;
  return adjusted_;
}

// The first `count` tokens in order of preference.
std::span<TokenId> Sampler::Largest(std::span<const float> logits, size_t count) {
  const auto ids = std::views::iota(TokenId(0), TokenId(logits.size()));
  const Before before{logits};
  order_.resize(std::max(order_.size(), logits.size()));
  const auto first = std::span(order_).first(count);
  if (count < logits.size() / 16) {
    std::ranges::partial_sort_copy(ids, first, before);  // most tokens cost one comparison
  } else {
    const auto all = std::span(order_).first(logits.size());
    std::ranges::copy(ids, all.begin());
    if (count < all.size()) std::ranges::nth_element(all, all.begin() + ptrdiff_t(count), before);
    std::ranges::sort(first, before);
  }
  return first;
}

// Puts in order_ the tokens that top_k keeps, or all but those too unlikely to be in top_p's nucleus.
// `total`: the sum of weights that top_p refers to.
std::span<TokenId> Sampler::Shortlist(std::span<const float> logits, const SampleSpec& spec,
                                      std::span<const float> weights, double* total) {
  if (CutsByRank(spec, logits.size())) {
    const auto ids = Largest(logits, size_t(spec.top_k));
    *total = 0;
    for (TokenId id : ids) *total += double(weights[size_t(id)]);
    return ids;
  }
  *total = SumOfWeights(weights);
  // All tokens below this weight together have at most half of what the nucleus leaves out.
  const double negligible = 0.5 * (1 - double(spec.top_p)) * *total / double(weights.size());
  order_.resize(std::max(order_.size(), logits.size()));
  size_t count = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    if (double(weights[i]) >= negligible) order_[count++] = TokenId(i);
  return std::span(order_).first(count);
}

// What top_k, then top_p keep, in order of token ids; at least one.
std::span<const TokenId> Sampler::Candidates(std::span<const float> logits, const SampleSpec& spec,
                                             std::span<const float> weights) {
  double total;
  const auto ids = Shortlist(logits, spec, weights, &total);
  size_t kept = ids.size();
  if (spec.top_p < 1) {
    const Before before{logits};
    const double target = double(spec.top_p) * total;
    const auto weight = [&](double sum, TokenId id) { return sum + double(weights[size_t(id)]); };
    // The nucleus ends somewhere in [low, high) of the order of preference. Halving without sorting takes
    // linear time, however flat the distribution.
    size_t low = 0, high = ids.size();
    double sum = 0;  // of weights before low
    while (high - low > 32) {
      const size_t middle = low + (high - low) / 2;
      const auto open = ids.subspan(low, high - low);
      std::ranges::nth_element(open, open.begin() + ptrdiff_t(middle - low), before);
      const auto front = ids.subspan(low, middle - low);
      const double with_front = std::accumulate(front.begin(), front.end(), sum, weight);
      if (with_front >= target) {
        high = middle;
      } else {
        low = middle, sum = with_front;
      }
    }
    std::ranges::sort(ids.subspan(low, high - low), before);
    for (kept = low; kept < high && sum < target; ++kept) sum = weight(sum, ids[kept]);
  }
  const auto candidates = ids.first(kept);
  std::ranges::sort(candidates);
  return candidates;
}

// Walks the running sum of probabilities in order of token ids up to Uniform(seed, draw).
TokenId Sampler::Draw(std::span<const float> logits, float largest, const SampleSpec& spec) {
  weights_.resize(std::max(weights_.size(), logits.size()));
  const auto weights = std::span(weights_).first(logits.size());
  const double u = Uniform(spec.seed, spec.draw);
  const bool filtered = CutsByRank(spec, logits.size()) || spec.top_p < 1;
  RelativeWeights(logits, largest, spec.temperature, filtered ? 0 : spec.min_p, weights);
  if (!filtered) return PickWeight(weights, u * SumOfWeights(weights));

  const auto ids = Candidates(logits, spec, weights);
  const auto kept = weights.first(ids.size());  // ids ascend, so that each is read before it is overwritten
  for (size_t i = 0; i < ids.size(); ++i) {
    const float weight = weights[size_t(ids[i])];
    kept[i] = weight >= spec.min_p ? weight : 0;
  }
  return ids[size_t(PickWeight(kept, u * SumOfWeights(kept)))];
}

Sampled Sampler::Sample(std::span<const float> logits, const SampleSpec& spec,
                        std::span<const TokenId> unseen) {
  PD_CHECK(!logits.empty());
  const auto adjusted = Adjusted(logits, spec, unseen);
  const float largest = LargestLogit(adjusted);
  const double log_total = double(largest) + std::log(SumOfExps(adjusted, largest, 1));
  const auto logprob = [&](TokenId id) { return float(double(adjusted[size_t(id)]) - log_total); };

  Sampled sampled;
  sampled.token = spec.temperature == 0 ? TokenId(std::ranges::find(adjusted, largest) - adjusted.begin())
                                        : Draw(adjusted, largest, spec);
  sampled.logprob = logprob(sampled.token);
  if (spec.top_logprobs > 0)
    for (TokenId id : Largest(adjusted, std::min(size_t(spec.top_logprobs), adjusted.size())))
      sampled.top.push_back({id, logprob(id)});
  return sampled;
}

}  // namespace pd
