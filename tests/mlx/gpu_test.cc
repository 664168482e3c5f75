// The kernels of src/mlx/gpu, their own text run on the processor, against the operations that they replace.
#include <gtest/gtest.h>

#include <random>

#include "mlx/kernels.h"
#include "tests/error_table.h"
#include "tests/mlx/simt.h"

namespace pd {
namespace {

using simt::BFloat;
using simt::Half;

template <class T>
constexpr auto kType = std::is_same_v<T, float>  ? DType::kF32
                       : std::is_same_v<T, Half> ? DType::kF16
                                                 : DType::kBF16;
template <class T>
double Allowed() {
  return test::OpError(std::is_same_v<T, float>  ? "mlx_f32"
                       : std::is_same_v<T, Half> ? "mlx_f16"
                                                 : "mlx_bf16");
}

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  template <class T>
  std::vector<T> Values(int count, float deviation = 1) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<T> values;
    for (int i = 0; i < count; ++i) values.push_back(T(normal(generator_)));
    return values;
  }
  int Below(int n) { return int(generator_() % unsigned(n)); }

 private:
  std::mt19937 generator_;
};

template <class T>
mx::array ToArray(const std::vector<T>& values, mx::Shape shape) {
  const std::vector<float> floats(values.begin(), values.end());
  return mx::astype(mx::array(floats.begin(), std::move(shape), mx::float32), ToMlx(kType<T>));
}
template <class T>
double Error(const std::vector<T>& got, const mx::array& want) {
  return test::RelativeError(std::vector<float>(got.begin(), got.end()), ReadFloats(want));
}

// ---- place
#include "mlx/gpu/head.kernel"

template <class T, int D, int HEADS, int KV_HEADS, int DIMS, int Q_STRIDE, int Q_FIRST, int K_STRIDE,
          int K_FIRST, int V_STRIDE, int V_FIRST, bool Q_NORM, bool K_NORM>
void PlaceKernel(const T* q_source, const T* k_source, const T* v_source, const T* q_gain, const T* k_gain,
                 const float* angles, const int* angle, const int* slot, const int* pos, const float* numbers,
                 const T* cache_k, const T* cache_v, const int* cache_k_shape, T* q_out) {
  SIMT_PLACE
#include "mlx/gpu/place.kernel"
}

template <class T, int D, int H, int K, int DIMS, bool NORM, bool WITH_Q>
void CheckPlace() {
  constexpr int kRows = 5, kSlots = 3, kTokens = 16, kStride = (H + 2 * K) * D;
  Random random(D + H);
  const auto x = random.Values<T>(kRows * kStride), q_gain = random.Values<T>(D),
             k_gain = random.Values<T>(D);
  auto k = random.Values<T>(kSlots * K * kTokens * D), v = random.Values<T>(kSlots * K * kTokens * D);
  const auto angles = random.Values<float>(kTokens * (DIMS > 0 ? DIMS : 1));
  const std::vector<int> slot = {2, 0, 2, 1, 2}, pos = {3, 15, 4, 0, 5};
  const float numbers[] = {1e-6f, 1e-3f};
  const int shape[] = {kSlots, K, kTokens, D};
  MlxLayerCache cache{ToArray(k, {kSlots, K, kTokens, D}), ToArray(v, {kSlots, K, kTokens, D})};
  std::vector<T> q(WITH_Q ? kRows * H * D : 1);
  simt::Machine::Get().Run({(H * WITH_Q + 2 * K + 3) / 4, kRows, 1}, 128, [&] {
    PlaceKernel<T, D, WITH_Q ? H : 0, K, DIMS, kStride, 0, kStride, H * D, kStride, (H + K) * D, NORM, NORM>(
        x.data(), x.data(), x.data(), q_gain.data(), k_gain.data(), angles.data(), pos.data(), slot.data(),
        pos.data(), numbers, k.data(), v.data(), shape, q.data());
  });

  MlxPlan plan;
  plan.count = kRows;
  plan.slot = Vector(slot), plan.pos = Vector(pos);
  AttentionSpec a;
  a.heads = H, a.kv_heads = K, a.head_dim = D;
  const mx::array matrix = ToArray(x, {kRows, kStride});
  const MlxColumns q_columns{matrix, 0, H * D}, k_columns{matrix, H * D, K * D},
      v_columns{matrix, (H + K) * D, K * D};
  const MlxNorm q_norm{ToArray(q_gain, {D}), numbers[0]}, k_norm{ToArray(k_gain, {D}), numbers[1]};
  MlxPlacement p{a, WITH_Q ? &q_columns : nullptr, k_columns, v_columns};
  if (NORM) p.q_norm = &q_norm, p.k_norm = &k_norm;
  const mx::array table = mx::array(angles.begin(), {kTokens, DIMS}, mx::float32);
  if (DIMS > 0) p.angles = &table, p.angle = &plan.pos;
  const mx::array want = MlxKernels().Place(p, plan, cache);
  if (WITH_Q) {
    EXPECT_LE(Error(q, want), Allowed<T>());
  }
  EXPECT_LE(Error(k, cache.k), Allowed<T>());
  EXPECT_LE(Error(v, cache.v), Allowed<T>());
}

TEST(GpuKernels, Place) {
  CheckPlace<Half, 64, 9, 3, 64, false, true>();
  CheckPlace<BFloat, 128, 4, 2, 128, true, true>();
  CheckPlace<Half, 64, 4, 1, 32, true, true>();  // a part of each head turns
  CheckPlace<float, 8, 2, 2, 0, false, true>();  // nothing turns
  CheckPlace<Half, 64, 4, 2, 64, true, false>();
}

// ---- attend, combine

template <class T, class O, int D, int HEADS, int KV_HEADS, int HG, int WARPS, int WINDOW, bool CAPPED,
          bool ONE_PART, bool PLACES, int DIMS, int Q_STRIDE, int Q_FIRST, int K_STRIDE, int K_FIRST,
          int V_STRIDE, int V_FIRST, bool Q_NORM, bool K_NORM>
void AttendKernel(const T* q_source, const T* k_source, const T* v_source, const T* q_gain, const T* k_gain,
                  const float* angles, const int* angle, const int* slot, const int* pos,
                  const float* numbers, const T* cache_k, const T* cache_v, const int* cache_k_shape, T* out,
                  O* parts, float* weight) {
  SIMT_PLACE
#include "mlx/gpu/attend.kernel"
#undef FRESH
}
template <class T, class O, int D, int HEADS, int KV_HEADS, int HG, int WARPS, int WINDOW, bool CAPPED,
          bool ONE_PART, bool PLACES, int DIMS, int Q_STRIDE, int Q_FIRST, int K_STRIDE, int K_FIRST,
          int V_STRIDE, int V_FIRST, bool Q_NORM, bool K_NORM>
void AttendJoinedKernel(const T* q_source, const T* k_source, const T* v_source, const T* q_gain,
                        const T* k_gain, const float* angles, const int* angle, const int* slot,
                        const int* pos, const float* numbers, const T* cache_k, const T* cache_v,
                        const int* cache_k_shape, const int* tickets, T* out, O* parts, float* weight) {
  SIMT_PLACE
#include "mlx/gpu/attend.kernel"
#include "mlx/gpu/join.kernel"
#undef FRESH
}
template <class T, int D>
void CombineKernel(const float* part, const int* part_shape, const float* weight, T* out) {
  SIMT_PLACE
#include "mlx/gpu/combine.kernel"
}

// Rows of these lengths, each the newest of its slot. PLACES: the kernel makes queries, keys and values
// itself.
template <class T, int D, int H, int K, int HG, int CHUNK, int WINDOW, bool CAPPED, bool PLACES, int DIMS,
          bool NORM>
void CheckAttention(const std::vector<int>& lengths) {
  constexpr int kStride = (H + 2 * K) * D;
  const int rows = int(lengths.size()), slots = rows + 1;
  const int longest = *std::max_element(lengths.begin(), lengths.end()), tokens = longest + 3;
  const int parts = (longest + CHUNK - 1) / CHUNK;
  Random random(D + H + rows);
  const auto x = random.Values<T>(rows * kStride, 1.5f), q_gain = random.Values<T>(D),
             k_gain = random.Values<T>(D);
  const auto angles = random.Values<float>(tokens * (DIMS > 0 ? DIMS : 1));
  auto k = random.Values<T>(slots * K * tokens * D), v = random.Values<T>(slots * K * tokens * D);
  const float numbers[] = {1 / std::sqrt(float(D)), CAPPED ? 5.f : 0.f, 1e-6f, 1e-3f, float(CHUNK)};
  const int shape[] = {slots, K, tokens, D};
  std::vector<int> slot, pos;
  MlxPlan plan;
  plan.count = rows, plan.longest = longest;
  for (int i = 0; i < rows; ++i) {
    slot.push_back(rows - i), pos.push_back(lengths[size_t(i)] - 1);
    plan.runs.push_back({slot.back(), i, 1, pos.back()});
  }
  plan.slot = Vector(slot), plan.pos = Vector(pos);

  AttentionSpec a;
  a.heads = H, a.kv_heads = K, a.head_dim = D, a.scale = numbers[0];
  if (WINDOW > 0) a.window = WindowSpec{WINDOW};
  if (CAPPED) a.soft_cap = numbers[1];
  MlxLayerCache cache{ToArray(k, {slots, K, tokens, D}), ToArray(v, {slots, K, tokens, D})};
  const mx::array matrix = ToArray(x, {rows, kStride});
  mx::array q = Columns(matrix, 0, H * D);
  std::vector<T> ready;  // queries [rows, H * D]
  if (PLACES) {
    const MlxColumns q_columns{matrix, 0, H * D}, k_columns{matrix, H * D, K * D},
        v_columns{matrix, (H + K) * D, K * D};
    const MlxNorm q_norm{ToArray(q_gain, {D}), numbers[2]}, k_norm{ToArray(k_gain, {D}), numbers[3]};
    MlxPlacement p{a, &q_columns, k_columns, v_columns};
    if (NORM) p.q_norm = &q_norm, p.k_norm = &k_norm;
    const mx::array table = mx::array(angles.begin(), {tokens, DIMS}, mx::float32);
    if (DIMS > 0) p.angles = &table, p.angle = &plan.pos;
    q = MlxKernels().Place(p, plan, cache);
    mx::eval(q, cache.k, cache.v);
    // The kernel must not read what it is to write, nor what lies behind it.
    for (int i = 0; i < rows; ++i)
      for (int h = 0; h < K; ++h)
        for (int t = pos[size_t(i)]; t < tokens; ++t)
          for (int d = 0; d < D; ++d) {
            const auto at = size_t(((slot[size_t(i)] * K + h) * tokens + t) * D + d);
            k[at] = v[at] = T(NAN);
          }
    ready = x;
  } else {
    for (float value : ReadFloats(q)) ready.push_back(T(value));
  }

  std::vector<T> out(size_t(rows * H * D));
  const simt::uint3 grid{H / HG, rows, parts};
  const auto run = [&]<class O, bool ONE_PART>(O* part, float* weight) {
    simt::Machine::Get().Run(grid, 128, [&] {
      AttendKernel<T, O, D, H, K, HG, 4, WINDOW, CAPPED, ONE_PART, PLACES, DIMS, PLACES ? kStride : H * D, 0,
                   kStride, H * D, kStride, (H + K) * D, NORM, NORM>(
          ready.data(), x.data(), x.data(), q_gain.data(), k_gain.data(), angles.data(), pos.data(),
          slot.data(), pos.data(), numbers, k.data(), v.data(), shape, out.data(), part, weight);
    });
  };
  if (parts == 1) {
    T unused{};
    float weight = 0;
    run.template operator()<T, true>(&unused, &weight);
  } else {
    // Parts that a row does not reach must not matter, whatever they hold.
    std::vector<float> part(size_t(rows * H * parts * D), NAN), weight(size_t(rows * H * parts * 2), NAN);
    run.template operator()<float, false>(part.data(), weight.data());
    const int part_shape[] = {rows, H, parts, D};
    simt::Machine::Get().Run({rows * H, 1, 1}, (D + 31) / 32 * 32, [&] {
      CombineKernel<T, D>(part.data(), part_shape, weight.data(), out.data());
    });
    if (PLACES) {  // the same, joined by the kernel itself
      std::vector<int> tickets(size_t(rows * H / HG));
      std::vector<T> joined(out.size(), T(NAN));
      simt::Machine::Get().Run(grid, 128, [&] {
        AttendJoinedKernel<T, float, D, H, K, HG, 4, WINDOW, CAPPED, false, PLACES, DIMS, kStride, 0, kStride,
                           H * D, kStride, (H + K) * D, NORM, NORM>(
            ready.data(), x.data(), x.data(), q_gain.data(), k_gain.data(), angles.data(), pos.data(),
            slot.data(), pos.data(), numbers, k.data(), v.data(), shape, tickets.data(), joined.data(),
            part.data(), weight.data());
      });
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(float(joined[i]), float(out[i])) << i;
      EXPECT_EQ(std::ranges::count(tickets, 0), std::ptrdiff_t(tickets.size()));
    }
  }
  EXPECT_LE(Error(out, MlxKernels().Attend(a, q, plan, cache)), Allowed<T>())
      << "D " << D << ", heads " << H << ", window " << WINDOW;
  if (!PLACES) return;
  const auto got_k = k, got_v = v;
  const auto want_k = ReadFloats(cache.k), want_v = ReadFloats(cache.v);
  for (int i = 0; i < rows; ++i)
    for (int h = 0; h < K; ++h)
      for (int d = 0; d < D; ++d) {
        const auto at = size_t(((slot[size_t(i)] * K + h) * tokens + pos[size_t(i)]) * D + d);
        EXPECT_NEAR(float(got_k[at]), want_k[at], 10 * Allowed<T>()) << i << " " << h << " " << d;
        EXPECT_EQ(float(got_v[at]), want_v[at]) << i << " " << h << " " << d;
      }
}
template <class T, int D, int H, int K, int HG, int CHUNK, int WINDOW, bool CAPPED>
void CheckAttend(const std::vector<int>& lengths) {
  CheckAttention<T, D, H, K, HG, CHUNK, WINDOW, CAPPED, false, 0, false>(lengths);
}

TEST(GpuKernels, PlaceAndAttend) {
  CheckAttention<float, 64, 4, 2, 2, 64, 0, false, true, 64, false>({1});
  CheckAttention<Half, 64, 9, 3, 3, 64, 0, false, true, 64, false>({1, 2, 31, 32, 33, 64});
  CheckAttention<Half, 64, 8, 1, 4, 64, 0, false, true, 64, true>(
      {65, 1, 200, 128, 129});  // two groups to a KV head
  CheckAttention<BFloat, 128, 8, 2, 4, 128, 0, false, true, 128, true>({300, 17});
  CheckAttention<Half, 256, 4, 1, 4, 64, 20, false, true, 256, true>({150, 5, 20, 21});
  CheckAttention<Half, 128, 7, 1, 7, 64, 0, true, true, 32, false>({70, 3});
  CheckAttention<Half, 32, 4, 4, 1, 64, 64, true, true, 0, false>({63, 64, 65, 130});
}

TEST(GpuKernels, Attend) {
  CheckAttend<float, 64, 4, 2, 2, 64, 0, false>({1});
  CheckAttend<Half, 64, 9, 3, 3, 64, 0, false>({1, 2, 31, 32, 33, 64});
  CheckAttend<Half, 64, 9, 3, 3, 64, 0, false>({65, 1, 200, 128});
  CheckAttend<BFloat, 128, 8, 2, 4, 128, 0, false>({300, 17});
  CheckAttend<Half, 256, 4, 1, 4, 64, 20, false>({150, 5, 20, 21});
  CheckAttend<Half, 128, 7, 1, 7, 64, 0, true>({70, 3});
  CheckAttend<Half, 32, 4, 4, 1, 64, 64, true>({63, 64, 65, 130});
  CheckAttend<float, 8, 2, 1, 2, 64, 0, false>({100, 3});
}

// ---- greedy, gate, take_rows

template <class T>
void GreedyKernel(const T* logits, const int* logits_shape, int* tokens, int* report){SIMT_PLACE
#include "mlx/gpu/greedy.kernel"
}

TEST(GpuKernels, Greedy) {
  for (int vocab : {1, 31, 1000, 3001}) {
    Random random{unsigned(vocab)};
    auto logits = random.Values<Half>(3 * vocab, 4);
    logits[size_t(vocab / 2)] = logits[size_t(vocab - 1)] = Half(30.f);  // row 0: two largest
    const int shape[] = {3, vocab};
    int tokens[3], report[6];
    simt::Machine::Get().Run({3, 1, 1}, 1024,
                             [&] { GreedyKernel<Half>(logits.data(), shape, tokens, report); });
    const MlxChoice want = MlxKernels().Greedy(ToArray(logits, {3, vocab}));
    EXPECT_EQ(std::vector<int>(tokens, tokens + 3), ReadInts(want.tokens));
    const auto want_report = ReadInts(want.report);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(report[2 * i], tokens[i]);
      EXPECT_NEAR(std::bit_cast<float>(report[2 * i + 1]), std::bit_cast<float>(want_report[2 * i + 1]),
                  1e-5);
    }
  }
  for (float bad : {NAN, INFINITY}) {
    std::vector<float> logits(100, 1.f);
    logits[57] = bad;
    const int shape[] = {1, 100};
    int token, report[2];
    simt::Machine::Get().Run({1, 1, 1}, 1024,
                             [&] { GreedyKernel<float>(logits.data(), shape, &token, report); });
    EXPECT_FALSE(std::isfinite(std::bit_cast<float>(report[1]))) << bad;
  }
}

template <class T, int HALF, int ACTIVATION>
void GateKernel(const T* x, T* out) {
  SIMT_PLACE
#include "mlx/gpu/gate.kernel"
}
template <class T, int HALF, Activation ACTIVATION>
void CheckGate() {
  Random random(HALF);
  const auto x = random.Values<T>(3 * 2 * HALF, 2);
  std::vector<T> out(3 * HALF);
  simt::Machine::Get().Run({(HALF + 1023) / 1024, 3, 1}, 128,
                           [&] { GateKernel<T, HALF, int(ACTIVATION)>(x.data(), out.data()); });
  EXPECT_LE(Error(out, MlxKernels().Gate(ToArray(x, {3, 2 * HALF}), ACTIVATION)), Allowed<T>());
}
TEST(GpuKernels, Gate) {
  CheckGate<Half, 1504, Activation::kSilu>();
  CheckGate<BFloat, 8, Activation::kGeluTanh>();
}

MlxWeight RandomCodes(Random& random, int rows, int columns, int bits, int group, mx::Dtype type) {
  const auto values = random.Values<float>(rows * columns);
  const auto parts = mx::quantize(mx::array(values.begin(), {rows, columns}, mx::float32), group, bits);
  MlxWeight w;
  w.values = parts[0], w.scales = mx::astype(parts[1], type), w.biases = mx::astype(parts[2], type);
  w.bits = bits, w.group = group;
  mx::eval(*w.values, *w.scales, *w.biases);
  return w;
}
// An array's bytes, as aligned as a GPU's memory: MLX's own on the processor is not.
class Memory {
 public:
  explicit Memory(const std::optional<mx::array>& a) {
    if (a) bytes_.assign(a->data<std::byte>(), a->data<std::byte>() + a->nbytes());
  }
  template <class T>
  const T* As() const {
    return reinterpret_cast<const T*>(bytes_.data());
  }

 private:
  std::vector<std::byte> bytes_;
};

template <class T, int BITS, int GROUP, int WIDTH>
void TakeRowsKernel(const uint32_t* table, const int* table_shape, const T* scales, const T* biases,
                    const int* ids, const float* numbers, T* out) {
  SIMT_PLACE
#include "mlx/gpu/take_rows.kernel"
}
template <class T, int BITS, int GROUP, int WIDTH>
void CheckTakeRows() {
  Random random(WIDTH);
  const mx::Dtype type = ToMlx(kType<T>);
  const MlxWeight w = RandomCodes(random, 20, WIDTH, BITS, GROUP, type);
  const Memory values(w.values), scales(w.scales), biases(w.biases);
  const std::vector<int> ids = {19, 0, 7, 1 << 30},
                         valid = {19, 0, 7, 19};  // no memory is read that is not the table's
  const int shape[] = {20, WIDTH * BITS / 32};
  const float scale = 2;
  std::vector<T> out(4 * WIDTH);
  simt::Machine::Get().Run({(WIDTH * BITS / 32 + 127) / 128, 4, 1}, 128, [&] {
    TakeRowsKernel<T, BITS, GROUP, WIDTH>(values.As<uint32_t>(), shape, scales.As<T>(), biases.As<T>(),
                                          ids.data(), &scale, out.data());
  });
  EXPECT_LE(Error(out, MlxKernels().Rows(w, Vector(valid), scale, type)), Allowed<T>());
}
TEST(GpuKernels, TakeRows) {
  CheckTakeRows<Half, 4, 32, 96>();
  CheckTakeRows<BFloat, 8, 64, 1216>();
  CheckTakeRows<float, 4, 64, 128>();
}

// ---- project

struct Shape {
  int rows, in, m;
};
template <class T, int BITS, int GROUP, int ROWS, int IN, int STRIPS, int TILES, int WARPS, int DEPTH,
          bool NORMED, int KEPT_ROWS, bool GATED, int ACTIVATION, bool BIASED, bool ADDED>
void ProjectKernel(const T* x, const int* x_shape, const T* gain, const void* w, const T* scales,
                   const T* biases, const T* offset, const T* residual, const float* numbers, T* out) {
  SIMT_PLACE
#include "mlx/gpu/project.kernel"
#undef WEIGHT_ROW
#undef STAGE
#undef FETCH_CHUNK
}

template <class T, int BITS, int GROUP, int ROWS, int IN, int STRIPS, int M, bool NORMED, bool GATED,
          bool BIASED, bool ADDED, int WARPS = 4, int DEPTH = 3>
void CheckProject() {
  Random random(ROWS + IN + M);
  const mx::Dtype type = ToMlx(kType<T>);
  LinearWeights<MlxWeight> weights;
  if (BITS != 0) {
    weights.weight = RandomCodes(random, ROWS, IN, BITS, GROUP, type);
  } else {
    weights.weight.values = ToArray(random.Values<T>(ROWS * IN, 1 / std::sqrt(float(IN))), {ROWS, IN});
    weights.weight.values->eval();
  }
  const auto x = random.Values<T>(M * IN), gain = random.Values<T>(IN), offset = random.Values<T>(ROWS);
  constexpr int kOut = GATED ? ROWS / 2 : ROWS;
  const auto residual = random.Values<T>(M * kOut, 10);
  const float eps = 1e-5f;
  const int shape[] = {M, IN};
  std::vector<T> out(size_t(M * kOut), T(NAN));
  const Memory w(weights.weight.values), scales(weights.weight.scales), biases(weights.weight.biases);
  simt::Machine::Get().Run({ROWS / (16 * STRIPS), 1, 1}, 32 * WARPS, [&] {
    ProjectKernel<T, BITS, GROUP, ROWS, IN, STRIPS, (M + 7) / 8, WARPS, DEPTH, NORMED, NORMED ? M : 1, GATED,
                  0, BIASED, ADDED>(x.data(), shape, gain.data(), w.As<void>(), scales.As<T>(),
                                    biases.template As<T>(), offset.data(), residual.data(), &eps,
                                    out.data());
  });
  // What it replaces sums in the activations' type: in float the comparison is sharper.
  const auto widen = [](const mx::array& a) { return mx::astype(a, mx::float32); };
  if (BITS != 0) {
    weights.weight.scales = widen(*weights.weight.scales),
    weights.weight.biases = widen(*weights.weight.biases);
  } else {
    weights.weight.values = widen(*weights.weight.values);
  }
  if (BIASED) weights.bias.emplace().values = widen(ToArray(offset, {ROWS}));
  const MlxNorm norm{widen(ToArray(gain, {IN})), eps};
  const mx::array wide = widen(ToArray(x, {M, IN})), added = widen(ToArray(residual, {M, kOut}));
  const Activation silu = Activation::kSilu;
  const mx::array want = MlxKernels().Project(
      {wide, NORMED ? &norm : nullptr, weights, GATED ? &silu : nullptr, ADDED ? &added : nullptr});
  EXPECT_LE(Error(out, want), Allowed<T>()) << BITS << " bits, " << M << " rows";
}

TEST(GpuKernels, ProjectCodes) {
  CheckProject<Half, 4, 32, 32, 256, 1, 1, true, false, false, true, 8, 3>();  // more warps than chunks
  CheckProject<Half, 4, 64, 48, 2176, 1, 1, false, false, true, false>();
  CheckProject<Half, 4, 128, 64, 384, 2, 9, false, false, false, true>();  // an odd number of scales in a row
  CheckProject<Half, 4, 32, 64, 1152, 2, 1, true, true, true, false, 8, 2>();
  CheckProject<BFloat, 4, 64, 32, 256, 2, 17, false, true, false, false>();
  CheckProject<Half, 8, 32, 32, 1152, 1, 2, true, false, false, true, 2, 4>();
  CheckProject<BFloat, 8, 64, 64, 384, 2, 32, false, true, false, false>();
}

TEST(GpuKernels, ProjectPlain) {
  CheckProject<Half, 0, 128, 32, 1152, 1, 1, true, false, false, true>();
  CheckProject<BFloat, 0, 128, 32, 384, 2, 5, false, true, true, false>();
  CheckProject<Half, 0, 128, 64, 256, 2, 31, false, false, false, true>();
}

}  // namespace
}  // namespace pd
