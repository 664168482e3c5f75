// AVX-512 with VNNI: 16 lanes in one register, products in tiles of 32 outputs by up to 6 or 12 rows.
#include <immintrin.h>

#include "cpu/kernels/tables.h"
#include "cpu/kernels/wide.h"

// Accumulators stay in registers only if every loop over them is unrolled.
#define PD_UNROLL _Pragma("GCC unroll 32")

namespace pd::cpu {
namespace {

struct V {
  __m512 v;

  static V Set(float x) { return {_mm512_set1_ps(x)}; }
  static V Iota() { return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
  static __mmask16 First(int lanes) { return __mmask16((1u << lanes) - 1); }
  static V Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static V LoadPart(const float* p, int lanes) { return {_mm512_maskz_loadu_ps(First(lanes), p)}; }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StorePart(float* p, int lanes) const { _mm512_mask_storeu_ps(p, First(lanes), v); }
  static V LoadHalf(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static V LoadHalfPart(const uint16_t* p, int lanes) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(First(lanes), p))};
  }
  __m256i Half() const { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  void StoreHalf(uint16_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Half()); }
  void StoreHalfPart(uint16_t* p, int lanes) const { _mm256_mask_storeu_epi16(p, First(lanes), Half()); }
  void StoreInt8(std::byte* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }

  friend V operator+(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend V operator-(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend V operator-(V a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.f))}; }
  friend V operator*(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend V operator/(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
  friend V Fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  friend V Sqrt(V a) { return {_mm512_sqrt_ps(a.v)}; }
  friend V Max(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }  // b where either is NaN
  friend V Min(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
  friend V Abs(V a) { return {_mm512_abs_ps(a.v)}; }
  friend V Round(V a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  friend V SelectLess(V a, V b, V yes, V no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
  }
  friend V CopySign(V magnitude, V sign) {
    return {_mm512_or_ps(magnitude.v, _mm512_and_ps(sign.v, _mm512_set1_ps(-0.f)))};
  }
  friend V PowerOfTwo(V n) {  // n: whole, in [-126, 127]
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
  }
  friend float Sum(V a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  friend float Largest(V a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
  }

  // block[i] lane j becomes block[j] lane i.
  static void Transpose(V* block) {
    __m512 a[16], b[16];
    PD_UNROLL for (int i = 0; i < 16; i += 2) {  // 2 x 2 floats
      a[i] = _mm512_unpacklo_ps(block[i].v, block[i + 1].v);
      a[i + 1] = _mm512_unpackhi_ps(block[i].v, block[i + 1].v);
    }
    PD_UNROLL for (int i = 0; i < 16; i += 4) {  // 4 x 4: b[i + j] holds column j of each 128-bit part
      PD_UNROLL for (int j = 0; j < 2; ++j) {
        const __m512d low = _mm512_castps_pd(a[i + j]), high = _mm512_castps_pd(a[i + 2 + j]);
        b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
        b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
      }
    }
    PD_UNROLL for (int j = 0; j < 4;
                   ++j) {  // parts p of b[j], b[4 + j], b[8 + j], b[12 + j] make column 4p + j
      const __m512 even = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88),
                   odd = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd);
      const __m512 even2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88),
                   odd2 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
      block[j].v = _mm512_shuffle_f32x4(even, even2, 0x88);
      block[4 + j].v = _mm512_shuffle_f32x4(odd, odd2, 0x88);
      block[8 + j].v = _mm512_shuffle_f32x4(even, even2, 0xdd);
      block[12 + j].v = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
    }
  }
};

// ---- products ----

template <DType kType>
__m512 LoadPlain(const std::byte* w, int64_t at) {
  if constexpr (kType == DType::kF32) return _mm512_loadu_ps(w + 4 * at);
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 2 * at));
  if constexpr (kType == DType::kF16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

template <DType kType, int kRows>
void PlainPanel(const TileJob& job, int first) {
  const std::byte* x = job.x + first * job.x_stride;
  float* out = job.out + first * job.out_stride;
  __m512 acc[kRows][2];
  PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (int64_t k = 0; k < job.k; ++k) {
    const __m512 w0 = LoadPlain<kType>(job.w, k * kTile), w1 = LoadPlain<kType>(job.w, k * kTile + 16);
    PD_UNROLL for (int r = 0; r < kRows; ++r) {
      const __m512 v = _mm512_set1_ps(reinterpret_cast<const float*>(x + r * job.x_stride)[k]);
      acc[r][0] = _mm512_fmadd_ps(v, w0, acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(v, w1, acc[r][1]);
    }
  }
  PD_UNROLL for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(out + r * job.out_stride, acc[r][0]);
    _mm512_storeu_ps(out + r * job.out_stride + 16, acc[r][1]);
  }
}

using Panel = void (*)(const TileJob&, int first);

template <DType kType>
void PlainProduct(const TileJob& job) {
  static constexpr Panel kPanels[] = {PlainPanel<kType, 1>,  PlainPanel<kType, 2>,  PlainPanel<kType, 3>,
                                      PlainPanel<kType, 4>,  PlainPanel<kType, 5>,  PlainPanel<kType, 6>,
                                      PlainPanel<kType, 7>,  PlainPanel<kType, 8>,  PlainPanel<kType, 9>,
                                      PlainPanel<kType, 10>, PlainPanel<kType, 11>, PlainPanel<kType, 12>};
  wide::ForPanels(job.rows, 12, [&](int first, int rows) { kPanels[rows - 1](job, first); });
}

__m512i Broadcast4(const std::byte* p) { return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p)); }

// `ahead`: a part of the next tile; with every group, `lines` cache lines of it are fetched into the
// second-level cache.
template <DType kType, int kRows>
void QuantisedPanel(const TileJob& job, int first, const std::byte* ahead, int lines) {
  constexpr bool k8 = kType == DType::kQ8_0;
  constexpr size_t kRecord = RecordBytes(kType), kScales = k8 ? kScalesOffset8 : kScalesOffset4;
  const __m512i nibble = _mm512_set1_epi8(15);
  const std::byte* w = job.w;
  const std::byte* x = job.x + first * job.x_stride;
  const std::byte* groups = x + GroupsOffset(job.k);
  uint32_t refined = 0;  // bit g % 24
  float* out = job.out + first * job.out_stride;
  __m512 acc[kRows][2];
  PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();

  for (int g = 0; g < job.k / kGroup; ++g, w += kRecord, x += kGroup, groups += sizeof(ActivationGroup)) {
    for (int i = 0; i < lines; ++i, ahead += 64)
      _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
    const auto group = [&](int r) {
      return reinterpret_cast<const ActivationGroup*>(groups + r * job.x_stride);
    };
    const auto* scales = reinterpret_cast<const uint16_t*>(w + kScales);
    // acc += the group's product with the rows' quants at `quants`.
    const auto add = [&](const std::byte* quants, int32_t ActivationGroup::* offset,
                         float ActivationGroup::* step) __attribute__((always_inline)) {
      __m512i sum[kRows][2];
      PD_UNROLL for (int r = 0; r < kRows; ++r) {
        __m512i start = _mm512_setzero_si512();
        if constexpr (k8) start = _mm512_set1_epi32(group(r)->*offset);
        if constexpr (kType == DType::kQ4_0)
          start = _mm512_srai_epi32(_mm512_set1_epi32(group(r)->*offset), 4);
        sum[r][0] = sum[r][1] = start;
      }
      const auto dot = [&](__m512i w0, __m512i w1, int at) __attribute__((always_inline)) {
        PD_UNROLL for (int r = 0; r < kRows; ++r) {
          const __m512i v = Broadcast4(quants + r * job.x_stride + at);
          sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, v);
          sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, v);
        }
      };
      PD_UNROLL for (int j = 0; j < (k8 ? 8 : 4); ++j) {
        const __m512i w0 = _mm512_load_si512(w + 128 * j), w1 = _mm512_load_si512(w + 128 * j + 64);
        if constexpr (k8) {
          dot(w0, w1, 4 * j);
        } else {
          dot(_mm512_and_si512(w0, nibble), _mm512_and_si512(w1, nibble), 4 * j);
          dot(_mm512_and_si512(_mm512_srli_epi16(w0, 4), nibble),
              _mm512_and_si512(_mm512_srli_epi16(w1, 4), nibble), 16 + 4 * j);
        }
      }
      PD_UNROLL for (int h = 0; h < 2; ++h) {
        const __m512 scale = V::LoadHalf(scales + 16 * h).v;
        PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r][h] = _mm512_fmadd_ps(
            _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][h]), scale), _mm512_set1_ps(group(r)->*step), acc[r][h]);
      }
    };
    add(x, &ActivationGroup::offset_sum, &ActivationGroup::scale);
    if (g % 24 == 0) refined = RefinedGroups(job.x + first * job.x_stride, job.x_stride, kRows, job.k, g);
    if (refined >> g % 24 & 1) add(x + job.k, &ActivationGroup::fine_offset, &ActivationGroup::fine_scale);
    if constexpr (kType == DType::kQ4_1) {
      PD_UNROLL for (int h = 0; h < 2; ++h) {
        const __m512 minimum = V::LoadHalf(scales + 32 + 16 * h).v;
        PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r][h] =
            _mm512_fmadd_ps(minimum, _mm512_set1_ps(group(r)->scaled_sum), acc[r][h]);
      }
    }
  }
  PD_UNROLL for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(out + r * job.out_stride, acc[r][0]);
    _mm512_storeu_ps(out + r * job.out_stride + 16, acc[r][1]);
  }
}

// Several panels each prefetch a part of the next tile; otherwise the first would wait for weights while the
// others leave memory idle. A single panel does not prefetch: on one stream the processor's own prefetching
// does better.
template <DType kType>
void QuantisedProduct(const TileJob& job) {
  using Fetching = void (*)(const TileJob&, int, const std::byte*, int);
  static constexpr Fetching kPanels[] = {QuantisedPanel<kType, 1>, QuantisedPanel<kType, 2>,
                                         QuantisedPanel<kType, 3>, QuantisedPanel<kType, 4>,
                                         QuantisedPanel<kType, 5>, QuantisedPanel<kType, 6>};
  constexpr int kMost = 6, kRecordLines = int(RecordBytes(kType) / 64);
  const int panels = (job.rows + kMost - 1) / kMost, groups = job.k / kGroup;
  const int lines = panels > 1 && job.next ? (kRecordLines + panels - 1) / panels : 0;
  const std::byte* ahead = job.next;
  int left = lines > 0 ? groups * kRecordLines : 0;
  wide::ForPanels(job.rows, kMost, [&](int first, int rows) {
    const int now = left > 0 ? lines : 0;
    kPanels[rows - 1](job, first, ahead, now);
    ahead += int64_t(now) * groups * 64, left -= now * groups;
  });
}

constexpr Kernels Table() {
  Kernels k = wide::RowKernels<V>(Level::kAvx512);
  k.f32 = PlainProduct<DType::kF32>;
  k.f16 = PlainProduct<DType::kF16>;
  k.bf16 = PlainProduct<DType::kBF16>;
  k.q8_0 = QuantisedProduct<DType::kQ8_0>;
  k.q4_0 = QuantisedProduct<DType::kQ4_0>;
  k.q4_1 = QuantisedProduct<DType::kQ4_1>;
  return k;
}

}  // namespace

constinit const Kernels kAvx512Kernels = Table();

}  // namespace pd::cpu
