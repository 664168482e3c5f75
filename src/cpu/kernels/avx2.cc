// AVX2 with FMA and F16C: 16 lanes in two registers, products in tiles of 32 outputs by up to 4 or 6 rows.
#include <immintrin.h>

#include "cpu/kernels/tables.h"
#include "cpu/kernels/wide.h"

#define PD_UNROLL _Pragma("GCC unroll 16")

namespace pd::cpu {
namespace {

__m256 LoadHalf8(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

void Transpose8(const __m256* in, __m256* out) {
  __m256 a[8], b[8];
  PD_UNROLL for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(in[i], in[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(in[i], in[i + 1]);
  }
  PD_UNROLL for (int i = 0; i < 8; i += 4) {
    PD_UNROLL for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0x44);
      b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + 2 + j], 0xee);
    }
  }
  PD_UNROLL for (int j = 0; j < 4; ++j) {
    out[j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x20);
    out[4 + j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x31);
  }
}

struct V {
  __m256 low, high;

  static V Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static V Iota() {
    return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)};
  }
  static V Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static V LoadPart(const float* p, int lanes) {
    float whole[16] = {};
    for (int i = 0; i < lanes; ++i) whole[i] = p[i];
    return Load(whole);
  }
  void Store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
  void StorePart(float* p, int lanes) const {
    float whole[16];
    Store(whole);
    for (int i = 0; i < lanes; ++i) p[i] = whole[i];
  }
  static V LoadHalf(const uint16_t* p) { return {LoadHalf8(p), LoadHalf8(p + 8)}; }
  static V LoadHalfPart(const uint16_t* p, int lanes) {
    uint16_t whole[16] = {};
    for (int i = 0; i < lanes; ++i) whole[i] = p[i];
    return LoadHalf(whole);
  }
  void StoreHalf(uint16_t* p) const {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(low, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(high, kNearest));
  }
  void StoreHalfPart(uint16_t* p, int lanes) const {
    uint16_t whole[16];
    StoreHalf(whole);
    for (int i = 0; i < lanes; ++i) p[i] = whole[i];
  }
  void StoreInt8(std::byte* p) const {
    const __m256i words =
        _mm256_packs_epi32(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));  // per 128 bits
    const __m256i sorted = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(sorted), _mm256_extracti128_si256(sorted, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }

  friend V operator+(V a, V b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  friend V operator-(V a, V b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  friend V operator-(V a) {
    const __m256 sign = _mm256_set1_ps(-0.f);
    return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
  }
  friend V operator*(V a, V b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  friend V operator/(V a, V b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  friend V Fma(V a, V b, V c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  friend V Sqrt(V a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
  friend V Max(V a, V b) {  // b where either is NaN
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  friend V Min(V a, V b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  friend V Abs(V a) {
    const __m256 sign = _mm256_set1_ps(-0.f);
    return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
  }
  friend V Round(V a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
  }
  friend V SelectLess(V a, V b, V yes, V no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  friend V CopySign(V magnitude, V sign) {
    const __m256 mask = _mm256_set1_ps(-0.f);
    return {_mm256_or_ps(magnitude.low, _mm256_and_ps(sign.low, mask)),
            _mm256_or_ps(magnitude.high, _mm256_and_ps(sign.high, mask))};
  }
  friend V PowerOfTwo(V n) {  // n: whole, in [-126, 127]
    const auto power = [](__m256 m) {
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(m), _mm256_set1_epi32(127)), 23));
    };
    return {power(n.low), power(n.high)};
  }
  friend float Sum(V a) {
    const __m256 half = _mm256_add_ps(a.low, a.high);
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  friend float Largest(V a) {
    const __m256 half = _mm256_max_ps(a.low, a.high);
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
  }

  // block[i] lane j becomes block[j] lane i.
  static void Transpose(V* block) {
    __m256 in[4][8], out[4][8];  // quarters: rows 0-7 or 8-15, lanes 0-7 or 8-15
    for (int i = 0; i < 8; ++i) {
      in[0][i] = block[i].low, in[1][i] = block[i].high;
      in[2][i] = block[8 + i].low, in[3][i] = block[8 + i].high;
    }
    for (int q = 0; q < 4; ++q) Transpose8(in[q], out[q]);
    for (int i = 0; i < 8; ++i) block[i] = {out[0][i], out[2][i]}, block[8 + i] = {out[1][i], out[3][i]};
  }
};

// ---- products ----

template <DType kType>
__m256 LoadPlain(const std::byte* w, int64_t at) {
  if constexpr (kType == DType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(w) + at);
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 2 * at));
  if constexpr (kType == DType::kF16) return _mm256_cvtph_ps(half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

template <DType kType, int kRows>
void PlainPanel(const TileJob& job, int first) {
  const std::byte* x = job.x + first * job.x_stride;
  for (int at = 0; at < kTile; at += 16) {
    float* out = job.out + first * job.out_stride + at;
    __m256 acc[kRows][2];
    PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int64_t k = 0; k < job.k; ++k) {
      const __m256 w0 = LoadPlain<kType>(job.w, k * kTile + at),
                   w1 = LoadPlain<kType>(job.w, k * kTile + at + 8);
      PD_UNROLL for (int r = 0; r < kRows; ++r) {
        const __m256 v = _mm256_broadcast_ss(reinterpret_cast<const float*>(x + r * job.x_stride) + k);
        acc[r][0] = _mm256_fmadd_ps(v, w0, acc[r][0]);
        acc[r][1] = _mm256_fmadd_ps(v, w1, acc[r][1]);
      }
    }
    PD_UNROLL for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(out + r * job.out_stride, acc[r][0]);
      _mm256_storeu_ps(out + r * job.out_stride + 8, acc[r][1]);
    }
  }
}

using Panel = void (*)(const TileJob&, int first);

template <DType kType>
void PlainProduct(const TileJob& job) {
  static constexpr Panel kPanels[] = {PlainPanel<kType, 1>, PlainPanel<kType, 2>, PlainPanel<kType, 3>,
                                      PlainPanel<kType, 4>, PlainPanel<kType, 5>, PlainPanel<kType, 6>};
  wide::ForPanels(job.rows, 6, [&](int first, int rows) { kPanels[rows - 1](job, first); });
}

// Sums of a group for 16 outputs (dwords at w + 128 j) and kRows rows. Bytes multiply pairwise into 16 bits;
// eight products of a nibble stay below 8 * 2 * 15 * 127 = 30480.
template <int kRows>
void DotNibbles(const std::byte* w, const std::byte* x, int64_t x_stride, __m256i (&sum)[kRows][2]) {
  const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  PD_UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
  PD_UNROLL for (int j = 0; j < 4; ++j) {
    const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + 128 * j)),
                  w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + 128 * j + 32));
    PD_UNROLL for (int high = 0; high < 2; ++high) {
      const __m256i n0 = _mm256_and_si256(high ? _mm256_srli_epi16(w0, 4) : w0, nibble),
                    n1 = _mm256_and_si256(high ? _mm256_srli_epi16(w1, 4) : w1, nibble);
      PD_UNROLL for (int r = 0; r < kRows; ++r) {
        const __m256i v =
            _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(x + r * x_stride + 16 * high + 4 * j));
        sum[r][0] = _mm256_add_epi16(sum[r][0], _mm256_maddubs_epi16(n0, v));
        sum[r][1] = _mm256_add_epi16(sum[r][1], _mm256_maddubs_epi16(n1, v));
      }
    }
  }
  PD_UNROLL for (int r = 0; r < kRows; ++r) {
    sum[r][0] = _mm256_madd_epi16(sum[r][0], ones);
    sum[r][1] = _mm256_madd_epi16(sum[r][1], ones);
  }
}

// The same for bytes of q + 128. The unsigned side of a product is |q|, at most 128: a pair stays below
// 2 * 128 * 127 = 32512.
template <int kRows>
void DotBytes(const std::byte* w, const std::byte* x, int64_t x_stride, __m256i (&sum)[kRows][2]) {
  const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  PD_UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
  PD_UNROLL for (int j = 0; j < 8; ++j) {
    PD_UNROLL for (int half = 0; half < 2; ++half) {
      const __m256i q = _mm256_xor_si256(
          _mm256_load_si256(reinterpret_cast<const __m256i*>(w + 128 * j + 32 * half)), flip);
      const __m256i magnitude = _mm256_abs_epi8(q);
      PD_UNROLL for (int r = 0; r < kRows; ++r) {
        const __m256i v = _mm256_set1_epi32(*reinterpret_cast<const int32_t*>(x + r * x_stride + 4 * j));
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(v, q));
        sum[r][half] = _mm256_add_epi32(sum[r][half], _mm256_madd_epi16(pairs, ones));
      }
    }
  }
}

template <DType kType, int kRows>
void QuantisedPanel(const TileJob& job, int first) {
  constexpr bool k8 = kType == DType::kQ8_0;
  constexpr size_t kRecord = RecordBytes(kType), kScales = k8 ? kScalesOffset8 : kScalesOffset4;
  const std::byte* w = job.w;
  const std::byte* x = job.x + first * job.x_stride;
  const std::byte* groups = x + GroupsOffset(job.k);
  uint32_t refined = 0;  // bit g % 24
  float* out = job.out + first * job.out_stride;
  __m256 acc[kRows][4];
  PD_UNROLL for (int r = 0; r < kRows; ++r) {
    PD_UNROLL for (int i = 0; i < 4; ++i) acc[r][i] = _mm256_setzero_ps();
  }
  for (int g = 0; g < job.k / kGroup; ++g, w += kRecord, x += kGroup, groups += sizeof(ActivationGroup)) {
    const auto group = [&](int r) {
      return reinterpret_cast<const ActivationGroup*>(groups + r * job.x_stride);
    };
    const auto* scales = reinterpret_cast<const uint16_t*>(w + kScales);
    // acc += the group's product with the rows' quants at `quants`.
    const auto add = [&](const std::byte* quants, int32_t ActivationGroup::* offset,
                         float ActivationGroup::* step) __attribute__((always_inline)) {
      PD_UNROLL for (int half = 0; half < 2; ++half) {
        __m256i sum[kRows][2];
        if constexpr (k8) {
          DotBytes<kRows>(w + 64 * half, quants, job.x_stride, sum);
        } else {
          DotNibbles<kRows>(w + 64 * half, quants, job.x_stride, sum);
        }
        PD_UNROLL for (int i = 0; i < 2; ++i) {
          const __m256 scale = LoadHalf8(scales + 8 * (2 * half + i));
          PD_UNROLL for (int r = 0; r < kRows; ++r) {
            __m256i exact = sum[r][i];
            if constexpr (kType == DType::kQ4_0)
              exact = _mm256_add_epi32(exact, _mm256_set1_epi32(group(r)->*offset / 16));
            __m256& total = acc[r][2 * half + i];
            total = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(exact), scale),
                                    _mm256_set1_ps(group(r)->*step), total);
          }
        }
      }
    };
    add(x, &ActivationGroup::offset_sum, &ActivationGroup::scale);
    if (g % 24 == 0) refined = RefinedGroups(job.x + first * job.x_stride, job.x_stride, kRows, job.k, g);
    if (refined >> g % 24 & 1) add(x + job.k, &ActivationGroup::fine_offset, &ActivationGroup::fine_scale);
    if constexpr (kType == DType::kQ4_1) {
      PD_UNROLL for (int i = 0; i < 4; ++i) {
        const __m256 minimum = LoadHalf8(scales + 32 + 8 * i);
        PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r][i] =
            _mm256_fmadd_ps(minimum, _mm256_set1_ps(group(r)->scaled_sum), acc[r][i]);
      }
    }
  }
  PD_UNROLL for (int r = 0; r < kRows; ++r) {
    PD_UNROLL for (int i = 0; i < 4; ++i) _mm256_storeu_ps(out + r * job.out_stride + 8 * i, acc[r][i]);
  }
}

template <DType kType>
void QuantisedProduct(const TileJob& job) {
  static constexpr Panel kPanels[] = {QuantisedPanel<kType, 1>, QuantisedPanel<kType, 2>,
                                      QuantisedPanel<kType, 3>, QuantisedPanel<kType, 4>};
  wide::ForPanels(job.rows, 4, [&](int first, int rows) { kPanels[rows - 1](job, first); });
}

constexpr Kernels Table() {
  Kernels k = wide::RowKernels<V>(Level::kAvx2);
  k.f32 = PlainProduct<DType::kF32>;
  k.f16 = PlainProduct<DType::kF16>;
  k.bf16 = PlainProduct<DType::kBF16>;
  k.q8_0 = QuantisedProduct<DType::kQ8_0>;
  k.q4_0 = QuantisedProduct<DType::kQ4_0>;
  k.q4_1 = QuantisedProduct<DType::kQ4_1>;
  return k;
}

}  // namespace

constinit const Kernels kAvx2Kernels = Table();

}  // namespace pd::cpu
