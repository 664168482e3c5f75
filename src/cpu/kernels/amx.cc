// AMX for quantised weights with many rows: its tiles compute the exact integer sums, AVX-512 the float
// steps, in the same order as every level. Everything else is from the AVX-512 table.
#include <immintrin.h>

#include <cstddef>

#include "cpu/kernels/tables.h"

#define PD_UNROLL _Pragma("GCC unroll 32")

namespace pd::cpu {
namespace {

constexpr int kRows = 16;   // of a block: accumulators of 16 rows and 16 outputs take half of the registers
constexpr int kChunk = 24;  // groups unpacked at a time: 30 KB with their scales, fits the first-level cache

// A chunk of a weight tile in the layout of the tile registers.
struct alignas(64) Unpacked {
  std::byte weights[kChunk][2][512];  // signed; of 16 outputs each: [k / 4][16][4]
  float scales[kChunk][2][16], minima[kChunk][2][16];
};

template <DType kType>
void Unpack(const std::byte* record, int groups, Unpacked& out) {
  constexpr bool k8 = kType == DType::kQ8_0;
  const __m512i nibble = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8), flip = _mm512_set1_epi8(-128);
  for (int g = 0; g < groups; ++g, record += RecordBytes(kType))
    for (int half = 0; half < 2; ++half) {
      std::byte* to = out.weights[g][half];
      for (int j = 0; j < (k8 ? 8 : 4); ++j) {
        const __m512i w = _mm512_load_si512(record + 128 * j + 64 * half);
        if constexpr (k8) {
          _mm512_store_si512(to + 64 * j, _mm512_xor_si512(w, flip));
        } else {
          __m512i low = _mm512_and_si512(w, nibble), high = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
          if constexpr (kType == DType::kQ4_0)
            low = _mm512_sub_epi8(low, eight), high = _mm512_sub_epi8(high, eight);
          _mm512_store_si512(to + 64 * j, low);
          _mm512_store_si512(to + 256 + 64 * j, high);
        }
      }
      const auto* scales =
          reinterpret_cast<const __m256i*>(record + (k8 ? kScalesOffset8 : kScalesOffset4)) + half;
      _mm512_store_ps(out.scales[g][half], _mm512_cvtph_ps(_mm256_loadu_si256(scales)));
      if constexpr (kType == DType::kQ4_1)
        _mm512_store_ps(out.minima[g][half], _mm512_cvtph_ps(_mm256_loadu_si256(scales + 2)));
    }
}

// Tiles 0 to 3: sums [16 rows][16 outputs]; 4, 5: quants [16 rows][32]; 6, 7: weights [8][16 outputs][4].
void Configure() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 32, 32, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 8, 8};
  } config;
  _tile_loadconfig(&config);
}

// The work of a row block for one group and half of the outputs; a refined group has two items. Offsets are
// in bytes from the block's first row.
struct Item {
  int32_t quants;       // [32 bytes]
  int32_t step;         // a float: scale or fine_scale
  int32_t scaled_sum;   // a float that the minimum multiplies; 0: in the group's other item
  int16_t group, half;  // of the chunk
};

// The items of a chunk in the order in which their products are added: first half, second half.
struct Items {
  void Make(int64_t k, int first, int groups, uint32_t refined) {
    count = 0;
    for (int16_t half = 0; half < 2; ++half)
      for (int16_t g = 0; g < groups; ++g) {
        const int quants = (first + g) * kGroup;
        const int group = int(GroupsOffset(k)) + (first + g) * int(sizeof(ActivationGroup));
        const int scale = group + int(offsetof(ActivationGroup, scale)),
                  fine = group + int(offsetof(ActivationGroup, fine_scale)),
                  sum = group + int(offsetof(ActivationGroup, scaled_sum));
        const bool twice = refined >> g & 1;
        of[count++] = {quants, scale, twice ? 0 : sum, g, half};
        if (twice) of[count++] = {quants + int(k), fine, sum, g, half};
      }
  }
  Item of[4 * kChunk];
  int count = 0;
};

constexpr int kAhead = 4;  // items whose sums are being computed or wait to be scaled
using Sums = int32_t[kRows][16];

#define PD_SUMS(C, A, B)                          \
  do {                                            \
    _tile_zero(C);                                \
    _tile_loadd(A, quants, stride);               \
    _tile_loadd(B, weights, 64);                  \
    _tile_dpbssd(C, A, B);                        \
    _tile_stored(C, sums[C], sizeof(sums[C][0])); \
  } while (0)

// The exact sums of item i, to sums[i % kAhead].
inline void StartSums(int i, const std::byte* quants, int64_t stride, const std::byte* weights, Sums* sums) {
  switch (i % kAhead) {
    case 0:
      PD_SUMS(0, 4, 6);
      break;
    case 1:
      PD_SUMS(1, 5, 7);
      break;
    case 2:
      PD_SUMS(2, 4, 6);
      break;
    default:
      PD_SUMS(3, 5, 7);
  }
}

inline float At(const std::byte* p) { return *reinterpret_cast<const float*>(p); }

// Rows [first_row, first_row + 16) times the chunk; writes out if `fresh`, else adds to it. `ahead`: memory
// up to `end` to prefetch into the second-level cache for the next tile.
template <DType kType>
void Block(const TileJob& job, const Unpacked& w, const Items& items, int first_row, bool fresh,
           const std::byte*& ahead, const std::byte* end) {
  const int64_t stride = job.x_stride;
  const std::byte* x = job.x + first_row * stride;
  float* out = job.out + first_row * job.out_stride;
  alignas(64) Sums sums[kAhead];
  const auto start = [&](int i) __attribute__((always_inline)) {
    if (i >= items.count) return;
    const Item& item = items.of[i];
    StartSums(i, x + item.quants, stride, w.weights[item.group][item.half], sums);
  };
  for (int i = 0; i < kAhead - 1; ++i) start(i);
  for (int half = 0; half < 2; ++half, out += 16) {
    __m512 acc[kRows];
    PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r] =
        fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(out + r * job.out_stride);
    for (int i = items.count / 2 * half; i < items.count / 2 * (half + 1); ++i) {
      start(i + kAhead - 1);
      if (ahead < end) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
        ahead += 64;
      }
      const Item& item = items.of[i];
      const __m512 scale = _mm512_load_ps(w.scales[item.group][half]);
      const std::byte* step = x + item.step;
      PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r] =
          _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums[i % kAhead][r])), scale),
                          _mm512_set1_ps(At(step + r * stride)), acc[r]);
      if constexpr (kType == DType::kQ4_1) {
        if (item.scaled_sum == 0) continue;
        const __m512 minimum = _mm512_load_ps(w.minima[item.group][half]);
        const std::byte* sum = x + item.scaled_sum;
        PD_UNROLL for (int r = 0; r < kRows; ++r) acc[r] =
            _mm512_fmadd_ps(minimum, _mm512_set1_ps(At(sum + r * stride)), acc[r]);
      }
    }
    PD_UNROLL for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(out + r * job.out_stride, acc[r]);
  }
}

template <DType kType>
void Product(const TileJob& job) {
  const int groups = job.k / kGroup, whole = job.rows / kRows * kRows;
  if (whole > 0) {
    Unpacked w;
    Items items;
    const std::byte* ahead = job.next;
    const std::byte* const end = ahead ? ahead + TileBytes(kType, job.k) : nullptr;
    Configure();
    for (int first = 0; first < groups; first += kChunk) {
      const int count = groups - first < kChunk ? groups - first : kChunk;
      Unpack<kType>(job.w + size_t(first) * RecordBytes(kType), count, w);
      asm volatile("" ::: "memory");  // the compiler does not know that tile loads read what was stored
      uint32_t made_for = 0;
      for (int r = 0; r < whole; r += kRows) {
        const uint32_t refined =
            RefinedGroups(job.x + r * job.x_stride, job.x_stride, kRows, job.k, first) & ((1u << count) - 1);
        if (r == 0 || refined != made_for) items.Make(job.k, first, count, made_for = refined);
        Block<kType>(job, w, items, r, first == 0, ahead, end);
      }
    }
    _tile_release();
  }
  if (whole == job.rows) return;
  TileJob rest = job;
  rest.x += whole * job.x_stride, rest.out += whole * job.out_stride, rest.rows -= whole;
  kAvx512Kernels.Product(kType)(rest);
}

}  // namespace

Kernels AmxKernels() {
  Kernels k = kAvx512Kernels;
  k.level = Level::kAmx;
  k.q8_0 = Product<DType::kQ8_0>;
  k.q4_0 = Product<DType::kQ4_0>;
  k.q4_1 = Product<DType::kQ4_1>;
  return k;
}

}  // namespace pd::cpu
