// Every kernel: scalar.cc against a double reference, and every level against scalar.cc bit for bit.
#include "cpu/kernels/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <random>

#include "base/error.h"
#include "cpu/packed.h"
#include "tests/cpu/random_weights.h"
#include "tests/error_table.h"

namespace pd::cpu {
namespace {

using test::RandomTensor;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<const Kernels*> AvailableKernels() {
  std::vector<const Kernels*> all;
  for (Level level : kAllLevels)
    if (const Kernels* kernels = FindKernels(level)) all.push_back(kernels);
  return all;
}
const Kernels& Scalar() { return *FindKernels(Level::kScalar); }

std::vector<float> RandomFloats(size_t n, unsigned seed, float deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

// Floats with `lead` of NaN before and 40 after: a kernel that reads past its input gives NaN, one that
// writes past its output is seen by Intact. A lead that is no multiple of 16 misaligns.
class Padded {
 public:
  Padded(std::span<const float> values, size_t lead) : lead_(lead), n_(values.size()) {
    all_.assign(lead, kNaN);
    all_.insert(all_.end(), values.begin(), values.end());
    all_.insert(all_.end(), 40, kNaN);
  }
  float* data() { return all_.data() + lead_; }
  std::span<const float> values() const { return std::span(all_).subspan(lead_, n_); }
  bool Intact() const {
    return std::all_of(all_.begin(), all_.begin() + ptrdiff_t(lead_),
                       [](float f) { return std::isnan(f); }) &&
           std::all_of(all_.end() - 40, all_.end(), [](float f) { return std::isnan(f); });
  }

 private:
  size_t lead_, n_;
  std::vector<float> all_;
};

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class EveryLevel : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};

// ---- products ----

struct ProductCase {
  DType type;
  int n, k;
};

// The activations of a product in the form its weights want.
std::vector<std::byte> Activations(const Kernels& kernels, DType type, std::span<const float> x, int rows,
                                   int k, int64_t* stride) {
  if (!IsQuantised(type)) {
    *stride = 4 * k;
    const auto bytes = std::as_bytes(x);
    return {bytes.begin(), bytes.end()};
  }
  *stride = Int8RowBytes(k);
  std::vector<std::byte> out(size_t(rows * *stride));
  for (int r = 0; r < rows; ++r) kernels.quantise_row(x.data() + r * k, k, kSpread, out.data() + r * *stride);
  return out;
}

std::vector<float> Multiply(const Kernels& kernels, const TensorView& w, std::span<const std::byte> x,
                            int64_t x_stride, int rows) {
  const int k = int(w.columns()), n = int(w.rows()), tiles = (n + kTile - 1) / kTile;
  std::vector<std::byte> memory(TileBytes(w.type, k) + 64);
  auto* tile = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::vector<float> padded(size_t(rows * tiles * kTile), kNaN);
  for (int t = 0; t < tiles; ++t) {
    PackTile(w, t, tile);
    kernels.Product(w.type)(
        {tile, k, x.data(), x_stride, rows, padded.data() + t * kTile, int64_t(tiles) * kTile, nullptr});
  }
  std::vector<float> out;
  for (int r = 0; r < rows; ++r)
    out.insert(out.end(), padded.begin() + r * tiles * kTile, padded.begin() + r * tiles * kTile + n);
  return out;
}

TEST_P(EveryLevel, ProductsAgreeWithDouble) {
  int refined = 0;
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1})
    for (int n : {1, 17, 32, 33, 70})
      for (int k : IsQuantised(type) ? std::vector{32, 64, 288} : std::vector{1, 2, 7, 16, 17, 63, 288}) {
        const TensorView w = RandomTensor(type, n, k, unsigned(n + k));
        const int rows = 5;
        auto x = RandomFloats(size_t(rows * k), 3);
        x[0] *= 60;  // an outlier
        int64_t stride;
        const auto acts = Activations(kernels(), type, x, rows, k, &stride);
        const auto got = Multiply(kernels(), w, acts, stride, rows);
        const auto weights = w.ReadAll();
        // What the float steps may lose, on top of what int8 activations do: bounded by the terms'
        // magnitudes.
        const double bound = (double(k) + 8) * std::numeric_limits<float>::epsilon();
        for (int r = 0; r < rows; ++r)
          for (int i = 0; i < n; ++i) {
            double want = 0, magnitude = 0;
            for (int j = 0; j < k; ++j) {
              double value = x[size_t(r * k + j)];
              if (IsQuantised(type)) {
                ActivationGroup group;
                const std::byte* row = acts.data() + r * stride;
                std::memcpy(&group, row + GroupsOffset(k) + j / kGroup * int(sizeof group), sizeof group);
                value = double(int8_t(row[j])) * group.scale + double(int8_t(row[k + j])) * group.fine_scale;
                const double step = double(group.fine_scale != 0 ? group.fine_scale : group.scale);
                EXPECT_NEAR(value, x[size_t(r * k + j)], 0.502 * step);
                refined += group.fine_scale != 0;
              }
              const double term = value * weights[size_t(i * k + j)];
              want += term, magnitude += std::fabs(term);
            }
            // q4_1's minimum is paid for in magnitude of its own: sum of |minimum * scaled_sum| is at most
            // that of the terms plus that of the quants' part.
            if (type == DType::kQ4_1) magnitude *= 3;
            ASSERT_NEAR(got[size_t(r * n + i)], want, bound * magnitude + 1e-30)
                << Name(type) << " " << n << "x" << k << " row " << r << " output " << i;
          }
      }
  EXPECT_GT(refined, 0);  // or the outlier above tests nothing
}

TEST_P(EveryLevel, ProductsHaveTheBitsOfScalar) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1})
    for (int rows = 1; rows <= 48; rows += rows < 27 ? 1 : 3) {
      // Long enough, at times, that what a kernel works on at once does not hold it all.
      const int n = 64, k = !IsQuantised(type) ? 61 : rows % 8 == 0 ? 1600 : 96;
      const TensorView w = RandomTensor(type, n, k, unsigned(rows));
      auto x = RandomFloats(size_t(rows * k), unsigned(rows + 1));
      for (int r = 0; r < rows; r += 3)
        x[size_t(r * k + r * 32 % k)] *= 60;  // some rows have a group to refine, others not
      int64_t stride;
      const auto want_x = Activations(Scalar(), type, x, rows, k, &stride);
      const auto got_x = Activations(kernels(), type, x, rows, k, &stride);
      ASSERT_EQ(got_x, want_x);
      const auto want = Multiply(Scalar(), w, want_x, stride, rows);
      ASSERT_TRUE(SameBits(Multiply(kernels(), w, got_x, stride, rows), want)) << Name(type) << " " << rows;
      // A row alone has the bits it has in company.
      for (int r = 0; r < rows; ++r) {
        const auto alone = Multiply(kernels(), w, std::span(got_x).subspan(size_t(r * stride)), stride, 1);
        ASSERT_TRUE(SameBits(alone, std::span(want).subspan(size_t(r * n), size_t(n))));
      }
    }
}

TEST_P(EveryLevel, ExtremeQuantsStayExact) {  // the largest sums that 16 and 32 bits must carry
  for (DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1})
    for (int byte : {0x00, 0x7f, 0x80, 0x81, 0xff, 0xf0, 0x0f})
      for (float sign : {1.f, -1.f}) {
        TensorView w = RandomTensor(type, 32, 64, 1);
        auto* bytes = const_cast<std::byte*>(w.bytes.data());
        const auto block = size_t(Info(type).block_bytes),
                   head = type == DType::kQ4_1 ? size_t(4) : size_t(2);
        for (size_t i = 0; i < w.bytes.size(); ++i)
          if (i % block >= head) bytes[i] = std::byte(byte);
        const std::vector<float> x(64, sign);
        int64_t stride;
        const auto acts = Activations(kernels(), type, x, 1, 64, &stride);
        const auto got = Multiply(kernels(), w, acts, stride, 1);
        const auto weights = w.ReadAll();
        for (int i = 0; i < 32; ++i) {
          double want = 0, magnitude = 0;
          for (int j = 0; j < 64; ++j) want += sign * double(weights[size_t(i * 64 + j)]);
          for (int j = 0; j < 64; ++j) magnitude += std::fabs(double(weights[size_t(i * 64 + j)])) + 1e-2;
          ASSERT_NEAR(got[size_t(i)], want, 1e-6 * magnitude) << Name(type) << " " << byte;
        }
      }
}

// ---- rows ----

// f(kernels, data) on copies of the same padded input at every length up to 70 and every misalignment.
void ExpectBitsOfScalar(const Kernels& kernels, float deviation,
                        const std::function<void(const Kernels&, float*, int)>& f) {
  for (int n = 1; n <= 70; ++n)
    for (size_t lead : {16, 17, 23}) {
      const auto x = RandomFloats(size_t(n), unsigned(n), deviation);
      Padded want(x, lead), got(x, lead);
      f(Scalar(), want.data(), n);
      f(kernels, got.data(), n);
      ASSERT_TRUE(SameBits(got.values(), want.values())) << n << " values from " << lead;
      ASSERT_TRUE(got.Intact()) << n << " values from " << lead;
    }
}

TEST_P(EveryLevel, RowFunctionsHaveTheBitsOfScalar) {
  const auto other = RandomFloats(200, 99);
  ExpectBitsOfScalar(kernels(), 2,
                     [&](const Kernels& k, float* x, int n) { k.norm(x, other.data() + 1, 1e-5f, n, x); });
  ExpectBitsOfScalar(kernels(), 2, [&](const Kernels& k, float* x, int n) {
    if (n % 2 == 0) k.rope(x, other.data() + 1, other.data() + 100, n / 2);
  });
  ExpectBitsOfScalar(kernels(), 2, [&](const Kernels& k, float* x, int n) { k.add(x, other.data() + 3, n); });
  ExpectBitsOfScalar(kernels(), 2, [&](const Kernels& k, float* x, int n) { k.scale(x, 0.3f, n, x); });
  ExpectBitsOfScalar(kernels(), 9, [&](const Kernels& k, float* x, int n) { k.soft_cap(x, 7.f, n); });
  for (int act = 0; act < 3; ++act)
    for (float deviation : {0.01f, 1.f, 60.f})
      ExpectBitsOfScalar(kernels(), deviation,
                         [&](const Kernels& k, float* x, int n) { k.gate[act](x, other.data() + 5, n); });
  ExpectBitsOfScalar(kernels(), 1, [&](const Kernels& k, float* x, int n) {
    k.blend(x, 0.25f, other.data() + 7, 0.75f, n);
  });
  ExpectBitsOfScalar(kernels(), 2e4, [&](const Kernels& k, float* x, int n) {  // some beyond the largest half
    std::vector<uint16_t> half(size_t(n) + 1, 0x7e01);
    k.to_half(x, n, half.data());
    EXPECT_EQ(half.back(), 0x7e01);
    for (int i = 0; i < n; ++i) x[i] = ToFloat(F16{half[size_t(i)]});
  });
}

// Every half survives, and floats between and beyond them round as the element types' own functions do.
TEST_P(EveryLevel, RoundsHalvesLikeTheElementTypes) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 half{uint16_t(bits)};
    const float exact = ToFloat(half), above = std::nextafter(exact, 1e9f), next = exact * (1 + 0x1p-11f);
    const float x[] = {exact, above, next};
    float back;
    kernels().from_half(&half.bits, 1, &back);
    uint16_t rounded[3];
    kernels().round_half(x, 3, rounded);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(back) && std::isnan(ToFloat(F16{rounded[0]})));
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(back), std::bit_cast<uint32_t>(exact));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(rounded[i], ToF16(x[i]).bits) << x[i];
  }
}

TEST_P(EveryLevel, TransposesHalves) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 40}, {16, 16}, {17, 33}, {65, 5}}) {
    const int in_stride = columns + 3, out_stride = rows + 5;
    const std::vector<float> floats = RandomFloats(size_t(rows * in_stride), 7, 1e4f);
    std::vector<uint16_t> halves(floats.size()), transposed(size_t(columns * out_stride), 0x7e01);
    kernels().round_half(floats.data(), int64_t(floats.size()), halves.data());
    std::vector<float> back(transposed.size(), 5.f);
    kernels().transpose_to_half(floats.data(), in_stride, rows, columns, transposed.data(), out_stride);
    kernels().transpose_from_half(halves.data(), in_stride, rows, columns, back.data(), out_stride);
    for (int c = 0; c < columns; ++c)
      for (int r = 0; r < out_stride; ++r) {
        const size_t to = size_t(c * out_stride + r), from = size_t(r * in_stride + c);
        EXPECT_EQ(transposed[to], r < rows ? halves[from] : 0x7e01);
        EXPECT_EQ(back[to], r < rows ? ToFloat(F16{halves[from]}) : 5.f);
      }
  }
}

TEST(ScalarKernels, NormAgreesWithDouble) {
  for (int n : {1, 3, 16, 17, 576}) {
    const auto x = RandomFloats(size_t(n), 1), gain = RandomFloats(size_t(n), 2);
    std::vector<float> got(x.size());
    Scalar().norm(x.data(), gain.data(), 1e-6f, n, got.data());
    double squares = 0;
    for (float v : x) squares += double(v) * v;
    std::vector<double> want;
    for (size_t i = 0; i < x.size(); ++i)
      want.push_back(x[i] / std::sqrt(squares / n + double(1e-6f)) * double(gain[i]));
    EXPECT_LE(test::RelativeError(got, want), test::OpError("cpu_f32"));
  }
}

// exp(x) for x <= 0, as it weighs what came before a block whose maximum is larger by -x.
float ExpOf(const Kernels& kernels, float x) {
  float max = x, sum = 1, keep, weight;
  const float block_max = 0, block_sum = 0;
  kernels.join(1, &max, &sum, &block_max, &block_sum, &keep, &weight);
  return keep;
}

TEST_P(EveryLevel, ExpIsAsAccurateAsItSays) {
  for (float x = -87; x <= 0; x += 0.0013f)
    ASSERT_NEAR(double(ExpOf(kernels(), x)) / std::exp(double(x)), 1, 1e-7) << x;
  EXPECT_EQ(ExpOf(kernels(), 0), 1.f);
  EXPECT_EQ(ExpOf(kernels(), -87.5f), 0.f);
  EXPECT_EQ(ExpOf(kernels(), -INFINITY), 0.f);
  EXPECT_TRUE(std::isnan(ExpOf(kernels(), kNaN)));
}

TEST_P(EveryLevel, JoinsHaveTheBitsOfScalar) {
  for (int n : {1, 2, 15, 16, 17, 40}) {
    const auto size = static_cast<size_t>(n);
    auto max = RandomFloats(size, 1, 30), sum = RandomFloats(size, 2), block_max = RandomFloats(size, 3, 30);
    const auto block_sum = RandomFloats(size, 4);
    max[0] = kNoScore;
    if (n > 1) block_max[1] = kNoScore;
    if (n > 2) max[2] = block_max[2] = kNoScore, sum[2] = 0;
    auto max2 = max, sum2 = sum;
    std::vector<float> keep(size), weight(size), keep2(size), weight2(size);
    Scalar().join(n, max.data(), sum.data(), block_max.data(), block_sum.data(), keep.data(), weight.data());
    kernels().join(n, max2.data(), sum2.data(), block_max.data(), block_sum.data(), keep2.data(),
                   weight2.data());
    EXPECT_TRUE(SameBits(max, max2) && SameBits(sum, sum2) && SameBits(keep, keep2) &&
                SameBits(weight, weight2));
    EXPECT_EQ(keep[0], 0.f);  // nothing came before
    EXPECT_EQ(weight[0], 1.f);
    if (n < 3) continue;
    EXPECT_EQ(weight[1], 0.f);  // nothing in the block
    EXPECT_EQ(max[2], kNoScore);
    EXPECT_FALSE(std::isnan(sum[2]));
  }
}

TEST(ScalarKernels, ActivationsAreAccurate) {
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto gelu = [](double x) { return x / 2 * std::erfc(-x / std::numbers::sqrt2); };
  const auto gelu_tanh = [](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  };
  for (float x = -30; x < 30; x += 0.00217f) {
    const float one = 1;
    const std::function<double(double)> want[] = {silu, gelu, gelu_tanh};
    for (int i = 0; i < 3; ++i) {
      float got = x;
      Scalar().gate[i](&got, &one, 1);
      ASSERT_NEAR(got, want[i](x), 4e-7 * std::fabs(x) + 1e-30) << i << " of " << x;
    }
    float capped = x;
    Scalar().soft_cap(&capped, 5, 1);
    ASSERT_NEAR(capped, 5 * std::tanh(x / 5), 5 * 3e-7) << x;
  }
}

// ---- attention ----

TEST_P(EveryLevel, PacksKeysAndValues) {
  std::mt19937 generator(1);
  for (int count : {1, 2, 15, 16, 17, 31, 32, 33, 100, 128})
    for (int dim : {1, 2, 8, 15, 16, 17, 33, 40, 64, 80}) {
      std::vector<uint16_t> rows(size_t(count * dim));  // exactly: the sanitizer sees a read beyond
      for (uint16_t& k : rows) k = uint16_t(generator() % 0x7c00);
      const auto at = [&](int t, int d) { return ToFloat(F16{rows[size_t(t * dim + d)]}); };
      const int padded = (dim + 31) / 32 * 32;
      std::vector<float> want(size_t(padded * kKeyBlock), kNaN), got = want;
      Scalar().pack_keys(rows.data(), count, dim, want.data());
      kernels().pack_keys(rows.data(), count, dim, got.data());
      ASSERT_TRUE(SameBits(got, want)) << count << "x" << dim;
      const int t = count - 1, d = dim - 1;
      EXPECT_EQ(got[size_t((t / 32 * dim + d) * 32 + t % 32)], at(t, d));
      Scalar().pack_values(rows.data(), count, dim, want.data());
      kernels().pack_values(rows.data(), count, dim, got.data());
      ASSERT_TRUE(SameBits(got, want)) << count << "x" << dim;
      EXPECT_EQ(got[size_t((d / 32 * kKeyBlock + t) * 32 + d % 32)], at(t, d));
    }
}

// What few queries give is what tiles give, and what scalar.cc gives.
TEST_P(EveryLevel, FewQueriesHaveTheBitsOfTiles) {
  std::mt19937 generator(1);
  for (int queries = 1; queries <= kFewQueries; ++queries)
    for (int count : {1, 15, 16, 17, 33, 128})
      for (int dim : {1, 8, 16, 17, 40, 64, 80, 128}) {
        std::vector<uint16_t> rows(size_t(count * dim));
        for (uint16_t& e : rows) e = uint16_t(generator() % 0x7c00 | (generator() % 2 ? 0x8000 : 0));
        const auto query = RandomFloats(size_t(queries * dim), 3);
        const int tiles = (dim + 31) / 32, padded_count = (count + 31) / 32 * 32;
        std::vector<float> packed(size_t(std::max(padded_count * dim, tiles * kKeyBlock * 32)));
        std::vector<float> want(size_t(queries * kKeyBlock), kNaN), got = want, truth = want;

        kernels().pack_keys(rows.data(), count, dim, packed.data());
        for (int t = 0; t < padded_count; t += 32)
          kernels().f32({reinterpret_cast<const std::byte*>(packed.data() + t * dim), dim,
                         reinterpret_cast<const std::byte*>(query.data()), 4 * dim, queries, want.data() + t,
                         kKeyBlock, nullptr});
        kernels().score_few(rows.data(), count, dim, query.data(), queries, got.data());
        Scalar().score_few(rows.data(), count, dim, query.data(), queries, truth.data());
        for (int q = 0; q < queries; ++q) {
          const auto of = [&](const std::vector<float>& all) {
            return std::span(all).subspan(size_t(q * kKeyBlock), size_t(count));
          };
          ASSERT_TRUE(SameBits(of(got), of(want))) << queries << " " << count << "x" << dim;
          ASSERT_TRUE(SameBits(of(truth), of(want)));
        }

        const auto p = RandomFloats(size_t(queries * kKeyBlock), 4);
        std::vector<float> out(size_t(queries * tiles * 32), kNaN), few = out, plain = out;
        kernels().pack_values(rows.data(), count, dim, packed.data());
        for (int d = 0; d < tiles * 32; d += 32)
          kernels().f32({reinterpret_cast<const std::byte*>(packed.data() + d * kKeyBlock), count,
                         reinterpret_cast<const std::byte*>(p.data()), 4 * kKeyBlock, queries, out.data() + d,
                         tiles * 32, nullptr});
        kernels().weigh_few(rows.data(), count, dim, p.data(), queries, few.data(), tiles * 32);
        Scalar().weigh_few(rows.data(), count, dim, p.data(), queries, plain.data(), tiles * 32);
        for (int q = 0; q < queries; ++q) {
          const auto of = [&](const std::vector<float>& all) {
            return std::span(all).subspan(size_t(q * tiles * 32), size_t(dim));
          };
          ASSERT_TRUE(SameBits(of(few), of(out))) << queries << " " << count << "x" << dim;
          ASSERT_TRUE(SameBits(of(plain), of(out)));
        }
      }
}

TEST_P(EveryLevel, SoftmaxOfNothing) {
  std::vector<float> scores(64, kNaN);
  SoftmaxJob job{scores.data(), 32, 64, 40, 40, 0, 0, 0};
  kernels().softmax(job);
  EXPECT_EQ(job.max, kNoScore);
  EXPECT_EQ(job.sum, 0.f);
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(scores[i], 0.f);
}

TEST_P(EveryLevel, SoftmaxAgreesWithDoubleAndHasTheBitsOfScalar) {
  for (float cap : {0.f, 5.f})
    for (int from : {0, 32})
      for (int begin : {from, from + 1, from + 20})
        for (int end : {begin + 1, begin + 7, begin + 16, 97}) {
          const int to = (end + 31) / 32 * 32;
          auto scores = RandomFloats(kKeyBlock, unsigned(begin + end), 4);
          for (int i = 0; i < kKeyBlock; ++i)
            if (i < begin || i >= end) scores[size_t(i)] = kNaN;  // keys nobody sees may hold anything
          auto want = scores, got = scores;
          SoftmaxJob a{want.data(), from, to, begin, end, cap, 0, 0},
              b{got.data(), from, to, begin, end, cap, 0, 0};
          Scalar().softmax(a);
          kernels().softmax(b);
          ASSERT_TRUE(SameBits(got, want));
          ASSERT_EQ(a.max, b.max);
          ASSERT_EQ(a.sum, b.sum);

          const auto score = [&](int i) {
            return cap > 0 ? cap * std::tanh(scores[size_t(i)] / double(cap)) : double(scores[size_t(i)]);
          };
          double max = -INFINITY, sum = 0;
          for (int i = begin; i < end; ++i) max = std::max(max, score(i));
          for (int i = begin; i < end; ++i) {
            sum += std::exp(score(i) - max);
            ASSERT_NEAR(got[size_t(i)], std::exp(score(i) - max), 5e-6);
          }
          for (int i = from; i < to; ++i) ASSERT_TRUE((i >= begin && i < end) || got[size_t(i)] == 0.f);
          ASSERT_NEAR(b.max, max, 2e-6 * (1 + std::fabs(max)));
          ASSERT_NEAR(b.sum, sum, 5e-6 * sum);
        }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryLevel, ::testing::ValuesIn(AvailableKernels()),
                         [](const auto& p) { return Name(p.param->level); });

// ---- packing ----

TEST(Packing, RowsComeBackAsTheyWere) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1})
    for (int n : {1, 31, 32, 40, 96})
      for (int interleaved : {0, 2}) {
        if (n % 4 != 0 && interleaved) continue;
        const int k = IsQuantised(type) ? 96 : 37;
        TensorView w = RandomTensor(type, n, k, unsigned(n));
        w.interleaved_heads = interleaved;
        PackedMatrix m{type, n, k, nullptr};
        std::vector<std::byte> memory(m.bytes() + 64, std::byte(0xff));
        auto* tiles =
            reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
        m.tiles = tiles;
        for (int64_t t = 0; t < m.tile_count(); ++t) PackTile(w, t, tiles + size_t(t) * m.tile_bytes());
        std::vector<float> want(static_cast<size_t>(k)), got = want;
        for (int r = 0; r < n; ++r) {
          w.ReadRow(r, want);
          ReadPackedRow(m, r, got);
          ASSERT_TRUE(SameBits(got, want)) << Name(type) << " row " << r;
        }
      }
}

}  // namespace
}  // namespace pd::cpu
