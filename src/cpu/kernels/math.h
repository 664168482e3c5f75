// Constants of the approximations that every level computes in the same way.
//
// exp(x): base/exp.h; 0 below kExpLow, and the value at kExpHigh above it. tanh(x) = (1 - e) / (1 + e) with e
// = exp(-2|x|), and the sign of x: absolute error below 2e-7. erfc(x), x >= 0: Abramowitz and Stegun,
// Handbook of Mathematical Functions, 7.1.26: absolute error below 2e-7.
#pragma once
#include "base/exp.h"

namespace pd::cpu {

inline constexpr float kErfcP = 0.3275911f, kErfc1 = 0.254829592f, kErfc2 = -0.284496736f,
                       kErfc3 = 1.421413741f, kErfc4 = -1.453152027f, kErfc5 = 1.061405429f;

// gelu_tanh(x) = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2 / pi) * (x + 0.044715 x^3).
inline constexpr float kGeluTwoRoot = 1.5957691216057308f, kGeluCubic = 0.044715f;
inline constexpr float kHalfRoot2 = 0.70710678118654752f;

inline constexpr float kLargestHalf = 65504.f;

}  // namespace pd::cpu
