// Passes over a row of logits, written so that the compiler vectorises them: each token takes a few passes
// over a vocabulary of 50,000 to 260,000 entries.
#pragma once
#include <span>

namespace pd {

// The largest value. Throws kDevice for NaN, +infinity, or when every value is -infinity.
float LargestLogit(std::span<const float> logits);

// weights[i] = e^((logits[i] - largest) / temperature) within 2e-7 of its value, or 0 where that is below
// `least`. Exactly 1 for the largest; exactly 0 where the exponent is below -87 or the logit is -infinity.
void RelativeWeights(std::span<const float> logits, float largest, float temperature, float least,
                     std::span<float> weights);

// The sum of the weights; the same for the same values at any alignment.
double SumOfWeights(std::span<const float> weights);
// The sum of e^((logits[i] - largest) / temperature).
double SumOfExps(std::span<const float> logits, float largest, float temperature);

// The first i at which the running sum of weights exceeds target; the last i of positive weight if rounding
// leaves none. At least one weight must be positive.
int PickWeight(std::span<const float> weights, double target);

}  // namespace pd
