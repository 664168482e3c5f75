// The arithmetic in plain loops: the definition that the vector files repeat bit for bit, and the fallback
// for processors without AVX2.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/tables.h"

namespace pd::cpu {
namespace {

template <class T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// ---- elementary functions ----

float Exp(float x) {
  if (!(x >= kExpLow)) return x < kExpLow ? 0.f : x;  // keeps NaN
  x = std::min(x, kExpHigh);
  const float n = std::nearbyint(x * kLog2e);
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float p = std::fma(kExp6, r, kExp5);
  p = std::fma(p, r, kExp4);
  p = std::fma(p, r, kExp3);
  p = std::fma(p, r, kExp2);
  p = std::fma(p, r, 1.f);
  p = std::fma(p, r, 1.f);
  return p * std::bit_cast<float>((int32_t(n) + 127) << 23);
}

float Tanh(float x) {
  const float e = Exp(std::fabs(x) * -2.f);
  return std::copysign((1.f - e) / (1.f + e), x);
}

float SoftCap(float x, float cap) { return cap * Tanh(x / cap); }

float Silu(float x) { return x / (1.f + Exp(-x)); }

float GeluTanh(float x) {
  const float u = kGeluTwoRoot * std::fma(kGeluCubic * x * x, x, x);
  return x / (1.f + Exp(-u));
}

float Gelu(float x) {
  const float z = std::fabs(x) * kHalfRoot2, t = 1.f / std::fma(kErfcP, z, 1.f);
  float p = std::fma(kErfc5, t, kErfc4);
  p = std::fma(p, t, kErfc3);
  p = std::fma(p, t, kErfc2);
  p = std::fma(p, t, kErfc1);
  const float tail = 0.5f * (p * t * Exp(-(z * z)));  // of the normal distribution, beyond |x|
  return x * (x < 0 ? tail : 1.f - tail);
}

// The last steps of a sum, once each lane is summed.
float Sum16(float (&lane)[16]) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

// ---- products ----

template <DType kType>
float PlainWeight(const std::byte* w, int64_t at) {
  if constexpr (kType == DType::kF32) return Load<float>(w + 4 * at);
  if constexpr (kType == DType::kF16) return ToFloat(Load<F16>(w + 2 * at));
  if constexpr (kType == DType::kBF16) return ToFloat(Load<BF16>(w + 2 * at));
}

template <DType kType>
void PlainProduct(const TileJob& job) {
  for (int r = 0; r < job.rows; ++r) {
    const std::byte* x = job.x + r * job.x_stride;
    for (int n = 0; n < kTile; ++n) {
      float acc = 0;
      for (int64_t k = 0; k < job.k; ++k)
        acc = std::fma(Load<float>(x + 4 * k), PlainWeight<kType>(job.w, k * kTile + n), acc);
      job.out[r * job.out_stride + n] = acc;
    }
  }
}

// Value k of output n in a record as the file stores it: without q8_0's + 128, but with q4_0's + 8.
template <DType kType>
int QuantisedWeight(const std::byte* record, int n, int k) {
  if constexpr (kType == DType::kQ8_0) return int(record[k / 4 * 128 + n * 4 + k % 4]) - 128;
  const int byte = int(record[k % 16 / 4 * 128 + n * 4 + k % 4]);
  return k < 16 ? byte & 15 : byte >> 4;
}

template <DType kType>
void QuantisedProduct(const TileJob& job) {
  constexpr size_t kScales = kType == DType::kQ8_0 ? kScalesOffset8 : kScalesOffset4;
  for (int r = 0; r < job.rows; ++r) {
    const std::byte* x = job.x + r * job.x_stride;
    for (int n = 0; n < kTile; ++n) {
      float acc = 0;
      for (int g = 0; g < job.k / kGroup; ++g) {
        const std::byte* record = job.w + size_t(g) * RecordBytes(kType);
        const auto group =
            Load<ActivationGroup>(x + GroupsOffset(job.k) + size_t(g) * sizeof(ActivationGroup));
        const float scale = ToFloat(Load<F16>(record + kScales + size_t(n) * 2));
        const auto add = [&](const std::byte* quants, int offset_sum, float step) {
          int sum = kType == DType::kQ4_0 ? offset_sum / 16 : 0;
          for (int k = 0; k < kGroup; ++k)
            sum += QuantisedWeight<kType>(record, n, k) * int(int8_t(quants[g * kGroup + k]));
          acc = std::fma(float(sum) * scale, step, acc);
        };
        add(x, group.offset_sum, group.scale);
        if (group.fine_scale != 0) add(x + job.k, group.fine_offset, group.fine_scale);
        if (kType == DType::kQ4_1)
          acc = std::fma(ToFloat(Load<F16>(record + kScales + 64 + size_t(n) * 2)), group.scaled_sum, acc);
      }
      job.out[r * job.out_stride + n] = acc;
    }
  }
}

float LargestOf(const float* group) {
  float largest = 0;
  for (int i = 0; i < kGroup; ++i) largest = largest > std::fabs(group[i]) ? largest : std::fabs(group[i]);
  return largest;
}

// q = round(x * inverse) within +-127; returns their sum.
int Quantise(const float* x, float inverse, std::byte* q) {
  int sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const auto nearest = std::clamp(std::lrint(x[i] * inverse), -127L, 127L);
    q[i] = std::byte(int8_t(nearest));
    sum += int(nearest);
  }
  return sum;
}

void QuantiseRow(const float* x, int64_t k, float spread, std::byte* out) {
  float squares = 0;
  for (int64_t at = 0; at < k; at += kGroup)
    squares = std::fma(LargestOf(x + at), LargestOf(x + at), squares);
  const float limit = spread * (squares / float(k / kGroup));
  std::byte* groups = out + GroupsOffset(k);
  std::memset(out + RefinedOffset(k), 0, size_t(k / kGroup + 7) / 8);
  for (int64_t at = 0; at < k; at += kGroup, groups += sizeof(ActivationGroup)) {
    const float largest = LargestOf(x + at);
    const float inverse = largest > kSmallestGroup ? 127.f / largest : 0.f;
    ActivationGroup group{};
    group.scale = largest * (1.f / 127);
    const int sum = Quantise(x + at, inverse, out + at);
    group.offset_sum = -128 * sum;
    group.scaled_sum = group.scale * float(sum);
    std::memset(out + k + at, 0, kGroup);
    if (largest > kSmallestGroup && largest * largest > limit) {
      float rest[kGroup];
      for (int i = 0; i < kGroup; ++i)
        rest[i] = std::fma(-group.scale, float(int8_t(out[at + i])), x[at + i]);
      const int fine_sum = Quantise(rest, inverse * 254.f, out + k + at);
      group.fine_scale = group.scale * (1.f / 254);
      out[RefinedOffset(k) + at / kGroup / 8] |= std::byte(1 << at / kGroup % 8);
      group.fine_offset = -128 * fine_sum;
      group.scaled_sum = std::fma(group.fine_scale, float(fine_sum), group.scaled_sum);
    }
    std::memcpy(groups, &group, sizeof group);
  }
}

// ---- rows ----

void Norm(const float* x, const float* gain, float eps, int64_t n, float* out) {
  float lane[16] = {};
  for (int64_t i = 0; i < n; ++i) lane[i % 16] = std::fma(x[i], x[i], lane[i % 16]);
  const float factor = 1.f / std::sqrt(Sum16(lane) / float(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor * gain[i];
}

void Rope(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = std::fma(a, cos[i], -(b * sin[i]));
    x[i + half] = std::fma(b, cos[i], a * sin[i]);
  }
}

void Add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

void Scale(const float* x, float factor, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::fma(x[i], factor, 0.f);
}

template <float (*kAct)(float)>
void Gate(float* x, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = kAct(x[i]) * up[i];
}

void SoftCapRow(float* x, float cap, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = SoftCap(x[i], cap);
}

void ToHalf(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = ToF16(std::clamp(x[i], -kLargestHalf, kLargestHalf)).bits;
}

void FromHalf(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = ToFloat(F16{x[i]});
}

void RoundHalf(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = ToF16(x[i]).bits;
}

void TransposeFromHalf(const uint16_t* in, int64_t in_stride, int rows, int columns, float* out,
                       int64_t out_stride) {
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) out[c * out_stride + r] = ToFloat(F16{in[r * in_stride + c]});
}

void TransposeToHalf(const float* in, int64_t in_stride, int rows, int columns, uint16_t* out,
                     int64_t out_stride) {
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) out[c * out_stride + r] = ToF16(in[r * in_stride + c]).bits;
}

// ---- attention ----

void PackKeys(const uint16_t* keys, int count, int dim, float* out) {
  for (int t = 0; t < (count + 31) / 32 * 32; ++t)
    for (int d = 0; d < dim; ++d)
      out[(t / 32 * dim + d) * 32 + t % 32] = t < count ? ToFloat(F16{keys[t * dim + d]}) : 0.f;
}

void PackValues(const uint16_t* values, int count, int dim, float* out) {
  for (int t = 0; t < count; ++t)
    for (int d = 0; d < (dim + 31) / 32 * 32; ++d)
      out[(d / 32 * kKeyBlock + t) * 32 + d % 32] = d < dim ? ToFloat(F16{values[t * dim + d]}) : 0.f;
}

void ScoreFew(const uint16_t* keys, int count, int dim, const float* query, int queries, float* scores) {
  for (int q = 0; q < queries; ++q)
    for (int t = 0; t < count; ++t) {
      float acc = 0;
      for (int d = 0; d < dim; ++d) acc = std::fma(query[q * dim + d], ToFloat(F16{keys[t * dim + d]}), acc);
      scores[q * kKeyBlock + t] = acc;
    }
}

void WeighFew(const uint16_t* values, int count, int dim, const float* p, int queries, float* out,
              int out_stride) {
  for (int q = 0; q < queries; ++q)
    for (int d = 0; d < dim; ++d) {
      float acc = 0;
      for (int t = 0; t < count; ++t)
        acc = std::fma(p[q * kKeyBlock + t], ToFloat(F16{values[t * dim + d]}), acc);
      out[q * out_stride + d] = acc;
    }
}

void Softmax(SoftmaxJob& job) {
  float* s = job.scores;
  job.max = kNoScore;
  for (int i = job.begin; i < job.end; ++i) {
    if (job.cap > 0) s[i] = SoftCap(s[i], job.cap);
    job.max = std::max(job.max, s[i]);
  }
  float lane[16] = {};
  for (int i = job.from; i < job.to; ++i) {
    s[i] = i >= job.begin && i < job.end ? Exp(s[i] - job.max) : 0.f;
    lane[i % 16] += s[i];
  }
  job.sum = Sum16(lane);
}

void Join(int n, float* max, float* sum, const float* block_max, const float* block_sum, float* keep,
          float* weight) {
  for (int i = 0; i < n; ++i) {
    const float larger = std::max(max[i], block_max[i]);
    keep[i] = Exp(max[i] - larger);
    weight[i] = Exp(block_max[i] - larger);
    sum[i] = std::fma(sum[i], keep[i], block_sum[i] * weight[i]);
    max[i] = larger;
  }
}

void Blend(float* acc, float keep, const float* add, float weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) acc[i] = std::fma(acc[i], keep, add[i] * weight);
}

}  // namespace

constinit const Kernels kScalarKernels = {
    .level = Level::kScalar,
    .f32 = PlainProduct<DType::kF32>,
    .f16 = PlainProduct<DType::kF16>,
    .bf16 = PlainProduct<DType::kBF16>,
    .q8_0 = QuantisedProduct<DType::kQ8_0>,
    .q4_0 = QuantisedProduct<DType::kQ4_0>,
    .q4_1 = QuantisedProduct<DType::kQ4_1>,
    .quantise_row = QuantiseRow,
    .norm = Norm,
    .rope = Rope,
    .add = Add,
    .scale = Scale,
    .gate = {Gate<Silu>, Gate<Gelu>, Gate<GeluTanh>},
    .soft_cap = SoftCapRow,
    .to_half = ToHalf,
    .from_half = FromHalf,
    .round_half = RoundHalf,
    .transpose_from_half = TransposeFromHalf,
    .transpose_to_half = TransposeToHalf,
    .pack_keys = PackKeys,
    .score_few = ScoreFew,
    .weigh_few = WeighFew,
    .pack_values = PackValues,
    .softmax = Softmax,
    .join = Join,
    .blend = Blend,
};

}  // namespace pd::cpu
