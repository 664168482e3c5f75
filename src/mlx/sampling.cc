#include "mlx/sampling.h"

#include <algorithm>
#include <cmath>

#include "sample/uniform.h"

namespace pd {
namespace {

// One number per rule, [R, 1].
template <class T, class F>
mx::array PerRow(std::span<const SampleSpec> sample, mx::Dtype type, F number) {
  std::vector<T> values;
  for (const SampleSpec& s : sample) values.push_back(T(number(s)));
  return mx::array(values.begin(), {int(values.size()), 1}, type);
}

// Weights [R, V], set to zero where top_k, top_p and min_p exclude a token.
mx::array Filter(const mx::array& logits, const mx::array& weights, std::span<const SampleSpec> sample) {
  const mx::array min_p = PerRow<float>(sample, mx::float32, [](auto& s) { return s.min_p; });
  const auto likely = [&](const mx::array& w) {
    return mx::where(mx::greater_equal(w, min_p), w, mx::array(0.f));
  };
  const int vocab = logits.shape(1);
  const bool ranked = std::ranges::any_of(sample, [](auto& s) { return s.top_k > 0 || s.top_p < 1; });
  if (!ranked) return likely(weights);
  const mx::array order = mx::argsort(mx::negative(logits), 1);
  mx::array w = mx::take_along_axis(weights, order, 1);  // descending
  const mx::array top_k =
      PerRow<int>(sample, mx::int32, [&](auto& s) { return s.top_k > 0 ? s.top_k : vocab; });
  w = mx::where(mx::less(mx::arange(0, vocab, mx::int32), top_k), w, mx::array(0.f));
  const mx::array before = mx::cumsum(w, 1, false, false);
  const mx::array share =
      PerRow<float>(sample, mx::float32, [](auto& s) { return s.top_p < 1 ? s.top_p : 2; });
  w = mx::where(mx::less(before, share * mx::sum(w, 1, true)), w, mx::array(0.f));
  return mx::put_along_axis(mx::zeros_like(weights), order, likely(w), 1);
}

// The first token at which the running sum of weights [R, V] exceeds the row's share u of the total: [R] i32.
mx::array Draw(const mx::array& weights, const mx::array& u) {
  const mx::array running = mx::cumsum(weights, 1);
  const mx::array total = mx::slice(running, {0, weights.shape(1) - 1}, running.shape());
  const auto count = [](const mx::array& holds) { return mx::sum(mx::astype(holds, mx::int32), 1); };
  // Rounding may make u * total equal the total: stay at the last token of positive weight.
  return mx::minimum(count(mx::less_equal(running, u * total)), count(mx::less(running, total)));
}

}  // namespace

bool SamplesOnDevice(const SampleSpec& spec) {
  return spec.penalties.Off() && spec.bias.empty() && spec.top_logprobs == 0;
}

MlxChoice SampleRows(MlxKernels& kernels, const mx::array& logits, std::span<const SampleSpec> sample) {
  MlxChoice greedy = kernels.Greedy(logits);
  if (std::ranges::all_of(sample, [](auto& s) { return s.temperature == 0; })) return greedy;
  const mx::array values = mx::astype(logits, mx::float32);
  const mx::array temperature =
      PerRow<float>(sample, mx::float32, [](auto& s) { return s.temperature > 0 ? s.temperature : 1; });
  const mx::array weights = mx::exp((values - mx::max(values, 1, true)) / temperature);
  const mx::array u = PerRow<float>(
      sample, mx::float32, [](auto& s) { return std::floor(Uniform(s.seed, s.draw) * 0x1p24) * 0x1p-24; });
  const mx::array random =
      mx::squeeze(PerRow<bool>(sample, mx::bool_, [](auto& s) { return s.temperature > 0; }), 1);
  const mx::array tokens = mx::where(random, Draw(Filter(values, weights, sample), u), greedy.tokens);
  const mx::array chosen = mx::squeeze(mx::take_along_axis(values, mx::expand_dims(tokens, 1), 1), 1);
  return MakeChoice(tokens, chosen - mx::logsumexp(values, -1));
}

}  // namespace pd
