// Passes over a row of logits, written so that the compiler turns them into vector code: a vocabulary of
// 50,000 to 260,000 entries is read a few times for every token.
#pragma once
#include <span>

namespace pd {

// e^x for x <= 0, within 2e-7 of the value; exactly 1 at 0, exactly 0 below -87 and at -infinity.
float ExpOfNonPositive(float x);

// The largest value. Throws kDevice for NaN, +infinity, or when every value is -infinity.
float LargestLogit(std::span<const float> logits);

// weights[i] = e^((logits[i] - largest) / temperature), or 0 where that is below `least`.
void RelativeWeights(std::span<const float> logits, float largest, float temperature, float least,
                     std::span<float> weights);

// The sum of the weights, the same for the same values whatever their alignment.
double SumOfWeights(std::span<const float> weights);
// The sum of e^((logits[i] - largest) / temperature).
double SumOfExps(std::span<const float> logits, float largest, float temperature);

// The first i at which the running sum of weights exceeds target; the last of positive weight when rounding
// leaves none. Some weight must be positive.
int PickWeight(std::span<const float> weights, double target);

}  // namespace pd
