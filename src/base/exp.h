// e^x in float: the one approximation that kernels and sampling use, each in its own order of operations.
//
// n = round(x * log2(e)), r = x - n * ln2 in two steps, 1 + r + r^2 * (c2 + c3 r + ... + c6 r^4) on
// [-ln2/2, ln2/2], then the exponent bits of 2^n. The coefficients minimise the largest relative error (3e-9;
// fitted by Lawson's iteration). In float: relative error below 1e-7 in [kExpLow, kExpHigh].
#pragma once

namespace pd {

inline constexpr float kExpLow = -87.f, kExpHigh = 88.f;
inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // sum: ln 2; High has 9 bits
inline constexpr float kExp2 = 4.9999994e-01f, kExp3 = 1.6666521e-01f, kExp4 = 4.166839e-02f,
                       kExp5 = 8.368717e-03f, kExp6 = 1.3814599e-03f;

}  // namespace pd
