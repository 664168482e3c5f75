// How far each backend may be from the double reference: every tolerance of the tests stands here, none in a
// test.
#pragma once
#include <cmath>
#include <cstdlib>
#include <span>
#include <string_view>

namespace pd::test {

struct ErrorRow {
  std::string_view name;  // backend and what it computes with
  double op;              // one operation: |got - want| / (the sum of |terms| of that output, or its norm)
  double logits;          // a tiny model's logits: |got - want|_2 / |want|_2
};

inline constexpr ErrorRow kErrorTable[] = {
    {"reference", 1e-12, 2e-6},     // keys and values leave as f32; transformers' goldens are stored as f32
    {"cpu_f32", 2e-6, 4e-3},        // float sums; keys and values are f16
    {"cpu_16bit", 2e-6, 4e-3},      // f16 and bf16 weights are exact in float
    {"cpu_quantised", 2e-2, 1e-1},  // activations are int8; the worst row of a real model
    {"cpu_same_rounding", 2e-6, 2e-4},  // against a reference that rounds cache and activations likewise
    {"mlx_f32", 2e-6, 2e-5},            // activations, keys and values in the named type
    {"mlx_f16", 4e-3, 2e-2},            // MLX sums products of codes in the activations' type too
    {"mlx_bf16", 3e-2, 1e-1},
    {"ane_reference", 2e-3, 2e-2},  // every result is rounded to f16; sums run in float. The worst row
    {"coreml_fp16", 2e-3, 5e-3},  // a program's weights, inputs and outputs are f16, its arithmetic is double
};

inline const ErrorRow& ErrorsOf(std::string_view name) {
  for (const ErrorRow& row : kErrorTable)
    if (row.name == name) return row;
  std::abort();  // a test names a row that does not exist
}
inline double OpError(std::string_view name) { return ErrorsOf(name).op; }
inline double LogitError(std::string_view name) { return ErrorsOf(name).logits; }

// |got - want|_2 / |want|_2. NaN when anything is NaN, which no bound accepts.
template <class A, class B>
double RelativeError(const A& got, const B& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = double(got[i]) - double(want[i]);
    error += d * d;
    norm += double(want[i]) * double(want[i]);
  }
  return std::sqrt(error / norm);
}

}  // namespace pd::test
