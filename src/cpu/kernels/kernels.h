// The arithmetic of the CPU backend: one table of functions per instruction set, all with equal results.
//
// Every function is defined by an exact sequence of IEEE operations: which products are fused, in which order
// sums run. scalar.cc spells it out; the vector files do the same to 16 lanes at a time, and tests demand
// equal bits. So batch, chunking, threads and processor do not change a result.
//   - Sums over k or over keys run in ascending order, one accumulator per output.
//   - Sum16, for norms and softmax: lane i adds entries i, i + 16, ... in order; then lanes i and i + 8 are
//     added, then i and i + 4, i + 2, i + 1.
// NaN and infinity in the input give NaN or infinity in the output, not necessarily the same on every level.
// Pointers need no alignment unless stated.
#pragma once
#include <cstdint>

#include "cpu/kernels/layout.h"
#include "cpu/level.h"

namespace pd::cpu {

// out[r][n] = sum over k of x[r][k] * w[k][n], for one tile of 32 outputs.
// w: a tile of type f32, f16, bf16: acc = fma(x, w, acc).
// w: a quantised tile, 64-byte aligned, records in sequence; x: rows as QuantiseRow makes them. For each
// group:
//   i   = the exact integer sum of q_w * q_x
//   acc = fma(float(i) * scale_w, scale_x, acc)
//   the same with r_x and fine_scale_x, where fine_scale_x is not zero (adding zero changes nothing)
//   acc = fma(minimum_w, scaled_sum_x, acc)         q4_1 only
struct TileJob {
  const std::byte* w;
  int k;
  const std::byte* x;
  int64_t x_stride;  // bytes
  int rows;
  float* out;
  int64_t out_stride;     // floats
  const std::byte* next;  // start of the next tile of the same size, to prefetch; or nullptr
};
using TileKernel = void (*)(const TileJob&);

// The scores of one row and head against a block of keys.
struct SoftmaxJob {
  float* scores;           // [to]; on return: exp(score - max) in [begin, end), 0 in the rest of [from, to)
  int from, to;            // multiples of 16
  int begin, end;          // keys this row sees; none if begin >= end
  float cap;               // 0: none; else scores become cap * tanh(score / cap) first
  float max = 0, sum = 0;  // out: maximum of the scores, or kNoScore; sum of the new `scores`
};
// Below any score, and finite: the difference of two is 0.
inline constexpr float kNoScore = -3e38f;

// For at most this many queries, reading a block of keys in place costs less than making tiles of it.
inline constexpr int kFewQueries = 8;

struct Kernels {
  Level level;

  TileKernel f32, f16, bf16, q8_0, q4_0, q4_1;

  // One row of activations, k a multiple of 32, to the layout of ActivationGroup; `spread` decides which
  // groups are refined. inverse = 127 / largest, q = round(x * inverse), r = round((x - scale * q) * (254 *
  // inverse)), to nearest even, both within +-127. The mean over groups is summed in order.
  void (*quantise_row)(const float* x, int64_t k, float spread, std::byte* out);

  // out = x * (1 / sqrt(Sum16(x^2) / n + eps)) * gain; out may be x.
  void (*norm)(const float* x, const float* gain, float eps, int64_t n, float* out);
  // Half-split rotation in place: a, b = x[i], x[i + half] become fma(a, cos, -(b * sin)), fma(b, cos, a *
  // sin).
  void (*rope)(float* x, const float* cos, const float* sin, int half);
  void (*add)(float* x, const float* y, int64_t n);  // x += y
  // out = fma(x, factor, 0), so that zero has one sign; out may be x.
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*gate[3])(float* x, const float* up, int64_t n);  // by Activation: x = act(x) * up
  void (*soft_cap)(float* x, float cap, int64_t n);       // x = cap * tanh(x / cap)

  // To binary16, rounded to nearest even. Saturates beyond the largest finite value: a cached infinity would
  // turn rows that give it no weight into NaN.
  void (*to_half)(const float* x, int64_t n, uint16_t* out);

  // ---- matrices of halves: from binary16 exactly; to binary16 to nearest even, infinity beyond its range
  // ----
  void (*from_half)(const uint16_t* x, int64_t n, float* out);
  void (*round_half)(const float* x, int64_t n, uint16_t* out);
  // The same, transposed: [rows, columns] to [columns, rows]. Strides in elements.
  void (*transpose_from_half)(const uint16_t* in, int64_t in_stride, int rows, int columns, float* out,
                              int64_t out_stride);
  void (*transpose_to_half)(const float* in, int64_t in_stride, int rows, int columns, uint16_t* out,
                            int64_t out_stride);

  // ---- attention: keyed by blocks of kKeyBlock keys, cache rows of `dim` halves ----

  // Keys [count, dim] to f32 tiles [kKeyBlock / 32][dim][32 keys]; zeros from count to the next multiple of
  // 32.
  void (*pack_keys)(const uint16_t* keys, int count, int dim, float* out);
  // The same two products without tiles, for at most kFewQueries queries [queries][dim]: scores[q * kKeyBlock
  // + t] of keys [count, dim], up to the next multiple of 16 keys (unspecified past count), and out[q *
  // out_stride + d] = sum over t of p[q * kKeyBlock + t] * values[t][d].
  void (*score_few)(const uint16_t* keys, int count, int dim, const float* query, int queries, float* scores);
  void (*weigh_few)(const uint16_t* values, int count, int dim, const float* p, int queries, float* out,
                    int out_stride);
  // Values [count, dim] to f32 tiles [dim / 32, rounded up][kKeyBlock][32 dims]; past dim: zeros.
  void (*pack_values)(const uint16_t* values, int count, int dim, float* out);
  void (*softmax)(SoftmaxJob& job);
  // Factors for joining a block to n rows' results so far (max, sum): m = larger of the two maxima, keep =
  // exp(max - m), weight = exp(block_max - m); sum = fma(sum, keep, block_sum * weight), max = m.
  void (*join)(int n, float* max, float* sum, const float* block_max, const float* block_sum, float* keep,
               float* weight);
  // acc = fma(acc, keep, add * weight)
  void (*blend)(float* acc, float keep, const float* add, float weight, int64_t n);

  TileKernel Product(DType type) const {
    switch (type) {
      case DType::kF32:
        return f32;
      case DType::kF16:
        return f16;
      case DType::kBF16:
        return bf16;
      case DType::kQ8_0:
        return q8_0;
      case DType::kQ4_0:
        return q4_0;
      case DType::kQ4_1:
        return q4_1;
      default:  // not a PackedType
        return nullptr;
    }
  }
};

// nullptr when this build or this processor lacks the level.
const Kernels* FindKernels(Level level);

}  // namespace pd::cpu
