// The row and attention functions of kernels.h over V, a type of 16 float lanes that each vector file defines
// for its instructions. scalar.cc spells out what each computes.
//
// V is in the unnamed namespace of its file, so these instances have internal linkage: code compiled for one
// processor never replaces code for another. For the same reason no library function is called here.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/math.h"

namespace pd::cpu::wide {

// Calls f(i, lanes) for i = 0, 16, ... below n; lanes is 16 except for the last call.
template <class F>
inline void ForLanes(int64_t n, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, int(n - i));
}

template <class V>
V GetHalf(const uint16_t* p, int lanes) {
  return lanes == 16 ? V::LoadHalf(p) : V::LoadHalfPart(p, lanes);
}
template <class V>
void PutHalf(V v, uint16_t* p, int lanes) {
  lanes == 16 ? v.StoreHalf(p) : v.StoreHalfPart(p, lanes);
}
template <class V>
V Get(const float* p, int lanes) {
  return lanes == 16 ? V::Load(p) : V::LoadPart(p, lanes);
}
template <class V>
void Put(V v, float* p, int lanes) {
  lanes == 16 ? v.Store(p) : v.StorePart(p, lanes);
}

// ---- elementary functions ----

template <class V>
V Exp(V x) {
  const V low = V::Set(kExpLow);
  const V y = Min(V::Set(kExpHigh), Max(low, x));  // this order keeps NaN
  const V n = Round(y * V::Set(kLog2e));
  V r = Fma(n, V::Set(-kLn2High), y);
  r = Fma(n, V::Set(-kLn2Low), r);
  V p = Fma(V::Set(kExp6), r, V::Set(kExp5));
  p = Fma(p, r, V::Set(kExp4));
  p = Fma(p, r, V::Set(kExp3));
  p = Fma(p, r, V::Set(kExp2));
  p = Fma(p, r, V::Set(1.f));
  p = Fma(p, r, V::Set(1.f));
  return SelectLess(x, low, V::Set(0.f), p * PowerOfTwo(n));
}

template <class V>
V Tanh(V x) {
  const V e = Exp(Abs(x) * V::Set(-2.f)), one = V::Set(1.f);
  return CopySign((one - e) / (one + e), x);
}

template <class V>
struct Silu {
  static V Of(V x) { return x / (V::Set(1.f) + Exp(-x)); }
};

template <class V>
struct GeluTanh {
  static V Of(V x) {
    const V u = V::Set(kGeluTwoRoot) * Fma(V::Set(kGeluCubic) * x * x, x, x);
    return x / (V::Set(1.f) + Exp(-u));
  }
};

template <class V>
struct Gelu {
  static V Of(V x) {
    const V one = V::Set(1.f), zero = V::Set(0.f);
    const V z = Abs(x) * V::Set(kHalfRoot2), t = one / Fma(V::Set(kErfcP), z, one);
    V p = Fma(V::Set(kErfc5), t, V::Set(kErfc4));
    p = Fma(p, t, V::Set(kErfc3));
    p = Fma(p, t, V::Set(kErfc2));
    p = Fma(p, t, V::Set(kErfc1));
    const V tail = V::Set(0.5f) * (p * t * Exp(-(z * z)));
    return x * SelectLess(x, zero, tail, one - tail);
  }
};

// ---- rows ----

template <class V>
float LargestOf(const float* group) {
  return Largest(Max(Abs(V::Load(group)), Abs(V::Load(group + 16))));
}

template <class V>
void QuantiseRow(const float* x, int64_t k, float spread, std::byte* out) {
  const V most = V::Set(127.f), least = V::Set(-127.f);
  const auto nearest = [&](V v, V inverse) { return Max(Min(Round(v * inverse), most), least); };
  float squares = 0;
  for (int64_t at = 0; at < k; at += kGroup) {
    const float largest = LargestOf<V>(x + at);
    squares = __builtin_fmaf(largest, largest, squares);
  }
  const float limit = spread * (squares / float(k / kGroup));
  auto* groups = reinterpret_cast<ActivationGroup*>(out + GroupsOffset(k));
  auto* refined = reinterpret_cast<uint8_t*>(out + RefinedOffset(k));
  for (int64_t i = 0; i < (k / kGroup + 7) / 8; ++i) refined[i] = 0;
  for (int64_t at = 0; at < k; at += kGroup, ++groups) {
    const V a = V::Load(x + at), b = V::Load(x + at + 16);
    const float largest = Largest(Max(Abs(a), Abs(b)));
    const float inverse = largest > kSmallestGroup ? 127.f / largest : 0.f;
    const V qa = nearest(a, V::Set(inverse)), qb = nearest(b, V::Set(inverse));
    qa.StoreInt8(out + at);
    qb.StoreInt8(out + at + 16);
    const float scale = largest * (1.f / 127), sum = Sum(qa + qb);  // of integers: exact in any order
    ActivationGroup group{scale, 0, scale * sum, -128 * int32_t(sum), 0};
    V ra = V::Set(0.f), rb = ra;
    if (largest > kSmallestGroup && largest * largest > limit) {
      const V minus_scale = V::Set(-scale), fine = V::Set(inverse * 254.f);
      ra = nearest(Fma(minus_scale, qa, a), fine);
      rb = nearest(Fma(minus_scale, qb, b), fine);
      const float fine_sum = Sum(ra + rb);
      group.fine_scale = scale * (1.f / 254);
      refined[at / kGroup / 8] |= uint8_t(1 << at / kGroup % 8);
      group.fine_offset = -128 * int32_t(fine_sum);
      group.scaled_sum = __builtin_fmaf(group.fine_scale, fine_sum, group.scaled_sum);
    }
    ra.StoreInt8(out + k + at);
    rb.StoreInt8(out + k + at + 16);
    *groups = group;
  }
}

template <class V>
void Norm(const float* x, const float* gain, float eps, int64_t n, float* out) {
  V squares = V::Set(0.f);
  ForLanes(n, [&](int64_t i, int lanes) {
    const V v = Get<V>(x + i, lanes);
    squares = Fma(v, v, squares);
  });
  const V factor = V::Set(1.f) / Sqrt(V::Set(Sum(squares)) / V::Set(float(n)) + V::Set(eps));
  ForLanes(n, [&](int64_t i, int lanes) {
    Put(Get<V>(x + i, lanes) * factor * Get<V>(gain + i, lanes), out + i, lanes);
  });
}

template <class V>
void Rope(float* x, const float* cos, const float* sin, int half) {
  ForLanes(half, [&](int64_t i, int lanes) {
    const V a = Get<V>(x + i, lanes), b = Get<V>(x + half + i, lanes);
    const V c = Get<V>(cos + i, lanes), s = Get<V>(sin + i, lanes);
    Put(Fma(a, c, -(b * s)), x + i, lanes);
    Put(Fma(b, c, a * s), x + half + i, lanes);
  });
}

template <class V>
void Add(float* x, const float* y, int64_t n) {
  ForLanes(n, [&](int64_t i, int lanes) { Put(Get<V>(x + i, lanes) + Get<V>(y + i, lanes), x + i, lanes); });
}

template <class V>
void Scale(const float* x, float factor, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, int lanes) {
    Put(Fma(Get<V>(x + i, lanes), V::Set(factor), V::Set(0.f)), out + i, lanes);
  });
}

template <class V, template <class> class Act>
void Gate(float* x, const float* up, int64_t n) {
  ForLanes(n, [&](int64_t i, int lanes) {
    Put(Act<V>::Of(Get<V>(x + i, lanes)) * Get<V>(up + i, lanes), x + i, lanes);
  });
}

template <class V>
void SoftCap(float* x, float cap, int64_t n) {
  const V c = V::Set(cap);
  ForLanes(n, [&](int64_t i, int lanes) { Put(c * Tanh(Get<V>(x + i, lanes) / c), x + i, lanes); });
}

template <class V>
void ToHalf(const float* x, int64_t n, uint16_t* out) {
  const V most = V::Set(kLargestHalf), least = V::Set(-kLargestHalf);
  ForLanes(n, [&](int64_t i, int lanes) {
    PutHalf(Max(least, Min(most, Get<V>(x + i, lanes))), out + i, lanes);  // this order keeps NaN
  });
}

template <class V>
void FromHalf(const uint16_t* x, int64_t n, float* out) {
  ForLanes(n, [&](int64_t i, int lanes) { Put(GetHalf<V>(x + i, lanes), out + i, lanes); });
}

template <class V>
void RoundHalf(const float* x, int64_t n, uint16_t* out) {
  ForLanes(n, [&](int64_t i, int lanes) { PutHalf(Get<V>(x + i, lanes), out + i, lanes); });
}

// Calls load(row, column, lanes) for 16 rows of each block of 16 x 16, then store(v, column, row, lanes) for
// the block's columns.
template <class V, class Load, class Store>
void Turn(int rows, int columns, Load load, Store store) {
  V block[16];
  for (int r = 0; r < rows; r += 16) {
    const int high = rows - r < 16 ? rows - r : 16;
    ForLanes(columns, [&](int64_t c, int lanes) {
      for (int i = 0; i < 16; ++i) block[i] = i < high ? load(r + i, c, lanes) : V::Set(0.f);
      V::Transpose(block);
      for (int i = 0; i < lanes; ++i) store(block[i], c + i, r, high);
    });
  }
}

template <class V>
void TransposeFromHalf(const uint16_t* in, int64_t in_stride, int rows, int columns, float* out,
                       int64_t out_stride) {
  Turn<V>(
      rows, columns,
      [=](int64_t r, int64_t c, int lanes) { return GetHalf<V>(in + r * in_stride + c, lanes); },
      [=](V v, int64_t c, int64_t r, int lanes) { Put(v, out + c * out_stride + r, lanes); });
}

template <class V>
void TransposeToHalf(const float* in, int64_t in_stride, int rows, int columns, uint16_t* out,
                     int64_t out_stride) {
  Turn<V>(
      rows, columns, [=](int64_t r, int64_t c, int lanes) { return Get<V>(in + r * in_stride + c, lanes); },
      [=](V v, int64_t c, int64_t r, int lanes) { PutHalf(v, out + c * out_stride + r, lanes); });
}

// ---- attention ----

template <class V>
void PackKeys(const uint16_t* keys, int count, int dim, float* out) {
  V block[16];
  for (int t = 0; t < (count + 31) / 32 * 32; t += 16)
    ForLanes(dim, [&](int64_t d, int lanes) {
      for (int i = 0; i < 16; ++i)
        block[i] = t + i < count ? GetHalf<V>(keys + int64_t(t + i) * dim + d, lanes) : V::Set(0.f);
      V::Transpose(block);
      for (int i = 0; i < lanes; ++i) block[i].Store(out + (t / 32 * dim + d + i) * 32 + t % 32);
    });
}

template <class V>
void PackValues(const uint16_t* values, int count, int dim, float* out) {
  for (int d = 0; d < (dim + 31) / 32 * 32; d += 16) {
    const int lanes = dim - d < 0 ? 0 : dim - d < 16 ? dim - d : 16;
    float* column = out + d / 32 * kKeyBlock * 32 + d % 32;
    for (int t = 0; t < count; ++t) GetHalf<V>(values + int64_t(t) * dim + d, lanes).Store(column + t * 32);
  }
}

// 16 keys at a time, transposed in registers so that each has a lane.
template <class V, int kQueries>
void ScoreKeys(const uint16_t* keys, int count, int dim, const float* query, float* scores) {
  V block[16], acc[kQueries];
  for (int t = 0; t < count; t += 16) {
    for (int q = 0; q < kQueries; ++q) acc[q] = V::Set(0.f);
    const uint16_t* key = keys + int64_t(t) * dim;
    ForLanes(dim, [&](int64_t d, int lanes) {
      if (count - t >= 16 && lanes == 16) {
        for (int i = 0; i < 16; ++i) block[i] = V::LoadHalf(key + int64_t(i) * dim + d);
      } else {
        for (int i = 0; i < 16; ++i)
          block[i] = t + i < count ? GetHalf<V>(key + int64_t(i) * dim + d, lanes) : V::Set(0.f);
      }
      V::Transpose(block);
      for (int i = 0; i < lanes; ++i)
        for (int q = 0; q < kQueries; ++q) acc[q] = Fma(V::Set(query[q * dim + d + i]), block[i], acc[q]);
    });
    for (int q = 0; q < kQueries; ++q) acc[q].Store(scores + q * kKeyBlock + t);
  }
}

// kParts times 16 dimensions of all keys; the last part has `lanes`.
template <class V, int kQueries, int kParts>
void WeighValues(const uint16_t* values, int count, int dim, int lanes, const float* p, float* out,
                 int out_stride) {
  V acc[kQueries][kParts];
  for (int q = 0; q < kQueries; ++q)
    for (int i = 0; i < kParts; ++i) acc[q][i] = V::Set(0.f);
  for (int t = 0; t < count; ++t, values += dim) {
    V v[kParts];
    for (int i = 0; i < kParts; ++i) v[i] = GetHalf<V>(values + 16 * i, i + 1 < kParts ? 16 : lanes);
    for (int q = 0; q < kQueries; ++q) {
      const V weight = V::Set(p[q * kKeyBlock + t]);
      for (int i = 0; i < kParts; ++i) acc[q][i] = Fma(weight, v[i], acc[q][i]);
    }
  }
  for (int q = 0; q < kQueries; ++q)
    for (int i = 0; i < kParts; ++i)
      Put(acc[q][i], out + q * out_stride + 16 * i, i + 1 < kParts ? 16 : lanes);
}

// kParts: limited by the registers of each query.
template <class V, int kQueries>
void Weigh(const uint16_t* values, int count, int dim, const float* p, float* out, int out_stride) {
  constexpr int kParts = kQueries <= 4 ? 4 : 2;
  int d = 0;
  for (; d + 16 * kParts <= dim; d += 16 * kParts)
    WeighValues<V, kQueries, kParts>(values + d, count, dim, 16, p, out + d, out_stride);
  for (; d < dim; d += 16)
    WeighValues<V, kQueries, 1>(values + d, count, dim, dim - d < 16 ? dim - d : 16, p, out + d, out_stride);
}

template <class V>
void ScoreFew(const uint16_t* keys, int count, int dim, const float* query, int queries, float* scores) {
  using Function = void (*)(const uint16_t*, int, int, const float*, float*);
  static constexpr Function kFor[] = {ScoreKeys<V, 1>, ScoreKeys<V, 2>, ScoreKeys<V, 3>, ScoreKeys<V, 4>,
                                      ScoreKeys<V, 5>, ScoreKeys<V, 6>, ScoreKeys<V, 7>, ScoreKeys<V, 8>};
  kFor[queries - 1](keys, count, dim, query, scores);
}

template <class V>
void WeighFew(const uint16_t* values, int count, int dim, const float* p, int queries, float* out,
              int out_stride) {
  using Function = void (*)(const uint16_t*, int, int, const float*, float*, int);
  static constexpr Function kFor[] = {Weigh<V, 1>, Weigh<V, 2>, Weigh<V, 3>, Weigh<V, 4>,
                                      Weigh<V, 5>, Weigh<V, 6>, Weigh<V, 7>, Weigh<V, 8>};
  kFor[queries - 1](values, count, dim, p, out, out_stride);
}

template <class V>
void Softmax(SoftmaxJob& job) {
  const V hidden = V::Set(-__builtin_inff()), begin = V::Set(float(job.begin)), end = V::Set(float(job.end));
  V largest = V::Set(kNoScore);
  for (int i = job.from; i < job.to; i += 16) {
    V s = V::Load(job.scores + i);
    if (job.cap > 0) s = V::Set(job.cap) * Tanh(s / V::Set(job.cap));
    const V at = V::Iota() + V::Set(float(i));
    s = SelectLess(at, begin, hidden, SelectLess(at, end, s, hidden));
    s.Store(job.scores + i);
    largest = Max(largest, s);
  }
  job.max = Largest(largest);
  const V max = V::Set(job.max);
  V sum = V::Set(0.f);
  for (int i = job.from; i < job.to; i += 16) {
    const V e = Exp(V::Load(job.scores + i) - max);
    e.Store(job.scores + i);
    sum = sum + e;
  }
  job.sum = Sum(sum);
}

template <class V>
void Join(int n, float* max, float* sum, const float* block_max, const float* block_sum, float* keep,
          float* weight) {
  ForLanes(n, [&](int64_t i, int lanes) {
    const V before = Get<V>(max + i, lanes), block = Get<V>(block_max + i, lanes),
            larger = Max(before, block);
    const V k = Exp(before - larger), w = Exp(block - larger);
    Put(k, keep + i, lanes);
    Put(w, weight + i, lanes);
    Put(Fma(Get<V>(sum + i, lanes), k, Get<V>(block_sum + i, lanes) * w), sum + i, lanes);
    Put(larger, max + i, lanes);
  });
}

template <class V>
void Blend(float* acc, float keep, const float* add, float weight, int64_t n) {
  ForLanes(n, [&](int64_t i, int lanes) {
    Put(Fma(Get<V>(acc + i, lanes), V::Set(keep), Get<V>(add + i, lanes) * V::Set(weight)), acc + i, lanes);
  });
}

// A table with everything but the products.
template <class V>
constexpr Kernels RowKernels(Level level) {
  Kernels k = {};
  k.level = level;
  k.quantise_row = QuantiseRow<V>;
  k.norm = Norm<V>;
  k.rope = Rope<V>;
  k.add = Add<V>;
  k.scale = Scale<V>;
  k.gate[0] = Gate<V, Silu>;
  k.gate[1] = Gate<V, Gelu>;
  k.gate[2] = Gate<V, GeluTanh>;
  k.soft_cap = SoftCap<V>;
  k.to_half = ToHalf<V>;
  k.from_half = FromHalf<V>;
  k.round_half = RoundHalf<V>;
  k.transpose_from_half = TransposeFromHalf<V>;
  k.transpose_to_half = TransposeToHalf<V>;
  k.pack_keys = PackKeys<V>;
  k.score_few = ScoreFew<V>;
  k.weigh_few = WeighFew<V>;
  k.pack_values = PackValues<V>;
  k.softmax = Softmax<V>;
  k.join = Join<V>;
  k.blend = Blend<V>;
  return k;
}

// ---- products ----

// Splits the rows of a product into panels that fit the registers: at most `most` rows each and as equal as
// possible, since a short last panel would stream all the weights for few rows. Calls f(first, rows).
template <class F>
inline void ForPanels(int rows, int most, F f) {
  const int panels = (rows + most - 1) / most;
  for (int i = 0, first = 0; i < panels; ++i) {
    const int size = rows / panels + (i < rows % panels);
    f(first, size);
    first += size;
  }
}

}  // namespace pd::cpu::wide
