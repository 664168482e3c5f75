// Constants of the approximations that every level evaluates in the same way.
//
// exp(x): n = round(x * log2(e)), r = x - n * ln2 in two fused steps, 1 + r + r^2 * (c2 + c3 r + ... + c6
// r^4) on [-ln2/2, ln2/2], then the exponent bits of 2^n. The coefficients minimise the largest relative
// error (3e-9; fitted by Lawson's iteration). In float: relative error below 1e-7 in [kExpLow, kExpHigh]; 0
// below that, and the value at kExpHigh above it. tanh(x) = (1 - e) / (1 + e) with e = exp(-2|x|), and the
// sign of x: absolute error below 2e-7. erfc(x), x >= 0: Abramowitz and Stegun, Handbook of Mathematical
// Functions, 7.1.26: absolute error below 2e-7.
#pragma once

namespace pd::cpu {

inline constexpr float kExpLow = -87.f, kExpHigh = 88.f;
inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // sum: ln 2; High has 9 bits
inline constexpr float kExp2 = 4.9999994e-01f, kExp3 = 1.6666521e-01f, kExp4 = 4.166839e-02f,
                       kExp5 = 8.368717e-03f, kExp6 = 1.3814599e-03f;

inline constexpr float kErfcP = 0.3275911f, kErfc1 = 0.254829592f, kErfc2 = -0.284496736f,
                       kErfc3 = 1.421413741f, kErfc4 = -1.453152027f, kErfc5 = 1.061405429f;

// gelu_tanh(x) = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2 / pi) * (x + 0.044715 x^3).
inline constexpr float kGeluTwoRoot = 1.5957691216057308f, kGeluCubic = 0.044715f;
inline constexpr float kHalfRoot2 = 0.70710678118654752f;

inline constexpr float kLargestHalf = 65504.f;

}  // namespace pd::cpu
