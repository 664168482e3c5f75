// The CPU's operations against ReferenceOps, and what it promises beyond other devices: the same bits with
// any number of threads and any instructions, no allocation once warm, weights shared between instances.
#include "cpu/backend.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/error.h"
#include "cpu/cpu_device.h"
#include "reference/reference_ops.h"
#include "tests/cpu/allocations.h"
#include "tests/cpu/random_weights.h"
#include "tests/device_checks.h"
#include "tests/error_table.h"
#include "tests/tiny_model.h"

namespace pd::cpu {
namespace {

using test::Alone;
using test::MixedSpec;
using test::RandomModel;
using test::SomeTokens;
using test::TinyModel;

// A tiny model whose matrices have the given type. Widths of the mixed spec are multiples of 16: for
// quantised types they are doubled.
TinyModel ModelOf(DType type) {
  ModelSpec spec = MixedSpec();
  spec.width = 64;
  for (LayerSpec& layer : spec.layers) {
    layer.mlp.hidden = 96;
    if (layer.attn.q_width() % kGroup != 0) layer.attn.heads *= 2, layer.attn.kv_heads *= 2;
  }
  TinyModel model = RandomModel(spec);
  unsigned seed = 0;
  ForEachWeight(spec, model.tensors, [&](TensorView& t, const WeightInfo& info) {
    if (info.shape.size() == 2) {
      t = test::RandomTensor(type, info.shape[0], info.shape[1], ++seed);
      t.name = info.name;
    }
  });
  return model;
}

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};

std::unique_ptr<DecodeDevice> OpenWith(TinyModel& model, int threads, std::optional<Level> level = {}) {
  const auto pool = std::make_shared<ThreadPool>(threads);
  return OpenCpuDevice(LoadCpuModel(model.spec, model.tensors, *pool), pool, {.level = level});
}

// ReferenceOps that rounds what the CPU rounds on purpose: its cache to 16 bits, and activations that meet
// quantised weights to 8. What is left between the two is the rounding of float sums.
class RoundingReference : public ReferenceOps {
 public:
  RoundingReference(TinyModel& model, bool quantised)
      : ReferenceOps(LoadReferenceModel(model.spec, model.tensors)), quantised_(quantised) {}

  void Append(int layer, const AttentionSpec& a, Tensor k, Tensor v, const Rows& rows) {
    for (auto* t : {&k, &v})
      for (double& e : t->values) e = ToFloat(ToF16(float(e)));
    ReferenceOps::Append(layer, a, std::move(k), std::move(v), rows);
  }
  Tensor Linear(const Tensor& x, const LinearWeights<Weight>& w) {
    return ReferenceOps::Linear(Rounded(x, double(kSpread)), w);
  }
  Tensor Logits(const Tensor& x, const Weight& head, std::optional<float> cap, const Rows& rows) {
    return ReferenceOps::Logits(Rounded(x, double(kRefineAll)), head, cap, rows);
  }

 private:
  Tensor Rounded(Tensor x, double spread) const {
    const auto largest = [](std::span<const double> group) {
      double most = 0;
      for (double e : group) most = std::max(most, std::fabs(e));
      return most;
    };
    for (int r = 0; quantised_ && r < x.rows; ++r) {
      double squares = 0;
      for (int at = 0; at < x.channels; at += kGroup) {
        const double most = largest({x.Row(r) + at, kGroup});
        squares += most * most;
      }
      for (int at = 0; at < x.channels; at += kGroup) {
        const std::span<double> group(x.Row(r) + at, kGroup);
        const double most = largest(group), scale = most / 127;
        const bool refined = most * most > spread * squares / (x.channels / kGroup);
        for (double& e : group) {
          const double q = scale > 0 ? scale * std::nearbyint(e / scale) : 0, fine = scale / 254;
          e = refined && scale > 0 ? q + fine * std::nearbyint((e - q) / fine) : q;
        }
      }
    }
    return x;
  }
  bool quantised_;
};

// Rounding is not continuous: where float and double fall on two sides of a boundary, an entry differs by a
// whole step, and with it its row and, through its keys and values, all later ones. That is rare: with few
// tokens, most rows agree to what float sums lose.
TEST(CpuBackend, MostRowsAgreeWithAReferenceThatRoundsAsItDoes) {
  for (DType type : kTypes) {
    TinyModel model = ModelOf(type);
    const int tokens = 40, vocab = model.spec.vocab;
    const auto ids = SomeTokens(tokens, vocab);
    const std::vector<SlotId> slots(ids.size(), 0);
    std::vector<int32_t> pos(ids.size());
    std::iota(pos.begin(), pos.end(), 0);
    const Rows rows{ids, pos, slots, pos};

    RoundingReference truth(model, IsQuantised(type));
    truth.OpenSlot(tokens, {});
    const auto want = truth.ReadLogits(*Forward(truth, model.spec, truth.ModelWeights(), rows));
    const auto device = OpenWith(model, 2);
    device->Open(tokens, {});
    const auto got = device->RunLogits(rows).values;

    std::vector<double> errors;
    for (size_t at = 0; at < want.size(); at += size_t(vocab))
      errors.push_back(test::RelativeError(std::span(got).subspan(at, size_t(vocab)),
                                           std::span(want).subspan(at, size_t(vocab))));
    std::sort(errors.begin(), errors.end());
    EXPECT_LE(errors[errors.size() / 2], test::LogitError("cpu_same_rounding")) << Name(type);
  }
}

TEST(CpuBackend, ThreadsAndInstructionsDoNotChangeABit) {
  for (DType type : kTypes) {
    TinyModel model = ModelOf(type);
    for (int length : {1, 9, 40, 300}) {
      const auto ids = SomeTokens(length, model.spec.vocab);
      const auto want = Alone(*OpenWith(model, 1), ids, length);
      for (int threads : {2, 5})
        EXPECT_EQ(Alone(*OpenWith(model, threads), ids, length), want)
            << Name(type) << ", " << threads << " threads";
      for (Level level : kAllLevels) {
        if (!FindKernels(level)) continue;
        EXPECT_EQ(Alone(*OpenWith(model, 1, level), ids, length), want) << Name(type) << ", " << Name(level);
      }
    }
  }
}

// ---- operations ----

// One operation at a time on the same input, rows and channels of every small size.
class CpuOperations : public ::testing::TestWithParam<Level> {
 protected:
  // A model whose only use is to hold weights and to give positions a meaning.
  struct Both {
    explicit Both(TinyModel& model, Level level, int threads = 2)
        : pool(std::make_shared<ThreadPool>(threads)),
          loaded(LoadCpuModel(model.spec, model.tensors, *pool)),
          cpu(loaded, pool, *FindKernels(level), size_t(1) << 40),
          truth(LoadReferenceModel(model.spec, model.tensors)) {}
    std::shared_ptr<ThreadPool> pool;
    std::shared_ptr<const CpuModel> loaded;
    CpuBackend cpu;
    ReferenceOps truth;
  };

  void SetUp() override {
    if (!FindKernels(GetParam())) GTEST_SKIP() << "not on this processor";
  }
};

std::vector<float> Values(const Matrix& m) {
  std::vector<float> all;
  for (int r = 0; r < m.rows(); ++r) all.insert(all.end(), m.Row(r), m.Row(r) + m.channels());
  return all;
}

// Rows 0 .. n-1 of slot 0, logits of the odd ones (and of the only one).
struct SomeRows {
  explicit SomeRows(int n, int vocab, int first = 0) : ids(SomeTokens(n, vocab)), slot(size_t(n), 0) {
    for (int r = 0; r < n; ++r) {
      pos.push_back(first + r);
      if (r % 2 == 1 || n == 1) wanted.push_back(r);
    }
  }
  operator Rows() const { return {ids, pos, slot, wanted}; }
  std::vector<TokenId> ids;
  std::vector<int32_t> pos;
  std::vector<SlotId> slot;
  std::vector<int32_t> wanted;
};

// The spec of a model with one layer of odd sizes.
ModelSpec OddSpec(int width, int heads, int kv_heads, int head_dim) {
  ModelSpec spec = MixedSpec(false);
  LayerSpec layer = spec.layers[0];
  spec.width = width, spec.vocab = 77, spec.embed_scale = 1.25f;
  layer.attn.heads = heads, layer.attn.kv_heads = kv_heads, layer.attn.head_dim = head_dim;
  layer.attn.rope = RopeSpec{10000, head_dim / 2 * 2, {}};
  if (head_dim < 2) layer.attn.rope.reset();
  layer.attn.qk_norm = NormSpec{1e-5f, true};
  layer.mlp.hidden = width + 3;
  spec.layers = {layer};
  return spec;
}

TEST_P(CpuOperations, AgreeWithReferenceAtEverySize) {
  const double bound = test::OpError("cpu_f32");
  for (int n = 1; n <= 17; ++n) {
    TinyModel model = RandomModel(OddSpec(n + 4, 6, n % 3 == 0 ? 3 : n % 2 + 1, n));
    Both both(model, GetParam());
    const auto& a = model.spec.layers[0].attn;
    const auto& cw = both.cpu.ModelWeights();
    const auto& tw = both.truth.ModelWeights();
    const auto& cl = cw.layers[0];
    const auto& tl = tw.layers[0];
    const SomeRows rows(n, model.spec.vocab);
    both.cpu.OpenSlot(64, {});
    both.truth.OpenSlot(64, {});
    both.cpu.BeginRows(rows);
    const auto expect = [&](const Matrix& got, const ReferenceOps::Tensor& want, const char* what) {
      ASSERT_EQ(got.rows(), want.rows);
      ASSERT_EQ(got.channels(), want.channels);
      EXPECT_LE(test::RelativeError(Values(got), want.values), bound) << what << " of " << n;
    };
    auto x = both.cpu.Embed(cw.embed, 1.25f, rows);
    auto tx = both.truth.Embed(tw.embed, 1.25f, rows);
    expect(x, tx, "embed");
    auto h = both.cpu.Norm(x, cl.pre_attn, model.spec.layers[0].pre_attn, 1);
    auto th = both.truth.Norm(tx, tl.pre_attn, model.spec.layers[0].pre_attn, 1);
    expect(h, th, "norm");
    auto [q, k, v] = both.cpu.Qkv(h, cl.q, cl.k, cl.v);
    EXPECT_EQ(Values(q), Values(both.cpu.Linear(h, cl.q)));  // fused: the same bits
    EXPECT_EQ(Values(k), Values(both.cpu.Linear(h, cl.k)));
    EXPECT_EQ(Values(v), Values(both.cpu.Linear(h, cl.v)));
    auto tq = both.truth.Linear(th, tl.q), tk = both.truth.Linear(th, tl.k), tv = both.truth.Linear(th, tl.v);
    expect(q, tq, "linear");
    q = both.cpu.Norm(q, *cl.q_gain, *a.qk_norm, a.heads);
    tq = both.truth.Norm(tq, *tl.q_gain, *a.qk_norm, a.heads);
    expect(q, tq, "norm of heads");
    if (a.rope) {
      q = both.cpu.Rope(std::move(q), a.heads, *a.rope, rows),
      k = both.cpu.Rope(std::move(k), a.kv_heads, *a.rope, rows);
      tq = both.truth.Rope(tq, a.heads, *a.rope, rows), tk = both.truth.Rope(tk, a.kv_heads, *a.rope, rows);
      expect(q, tq, "rope");
    }
    both.cpu.Append(0, a, std::move(k), std::move(v), rows);
    for (auto* t : {&tk, &tv})
      for (double& e : t->values)
        e = ToFloat(ToF16(float(e)));  // a step of binary16 apart at most, see below
    both.truth.Append(0, a, tk, tv, rows);
    for (std::optional<int> window : {std::optional<int>(), std::optional<int>(3)})
      for (std::optional<float> cap : {std::optional<float>(), std::optional<float>(2.5f)}) {
        AttentionSpec attention = a;
        attention.window = window, attention.soft_cap = cap;
        Matrix again = both.cpu.Linear(h, cl.q);
        const auto want = both.truth.Attend(0, attention, both.truth.Linear(th, tl.q), rows);
        EXPECT_LE(
            test::RelativeError(Values(both.cpu.Attend(0, attention, std::move(again), rows)), want.values),
            test::LogitError("cpu_f32"))
            << n;
      }
    for (Activation act : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
      const auto fused = both.cpu.GatedMlp(h, cl.gate, cl.up, cl.down, act);
      auto gate = both.cpu.Linear(h, cl.gate);
      auto tgate = both.truth.Linear(th, tl.gate);
      gate = both.cpu.Gate(std::move(gate), both.cpu.Linear(h, cl.up), act);
      tgate = both.truth.Gate(tgate, both.truth.Linear(th, tl.up), act);
      expect(gate, tgate, "gate");
      EXPECT_EQ(Values(fused), Values(both.cpu.Linear(gate, cl.down)));
    }
    x = both.cpu.Add(std::move(x), h), tx = both.truth.Add(tx, th);
    expect(x, tx, "add");
    for (std::optional<float> cap : {std::optional<float>(), std::optional<float>(3.f)}) {
      const Matrix logits = both.cpu.Logits(x, cw.HeadOrEmbed(), cap, rows);
      const auto want = both.truth.Logits(tx, tw.HeadOrEmbed(), cap, rows);
      expect(logits, want, "logits");
      const auto read = both.cpu.ReadLogits(logits);
      EXPECT_EQ(std::vector<float>(read.begin(), read.end()), Values(logits));
    }
  }
}

// The fused and the composed forms agree in bits where rows are split and where tiles are.
TEST_P(CpuOperations, FusedFormsHaveTheBitsOfComposedOnes) {
  for (DType type : kTypes) {
    TinyModel model = ModelOf(type);
    Both both(model, GetParam());
    const auto& w = both.cpu.ModelWeights();
    both.cpu.OpenSlot(512, {});
    for (int n : {1, 2, 7, 13, 16, 40, 300}) {
      const SomeRows rows(n, model.spec.vocab);
      both.cpu.BeginRows(rows);
      const Matrix x = both.cpu.Embed(w.embed, 1, rows);
      const auto& l = w.layers[0];
      const auto [q, k, v] = both.cpu.Qkv(x, l.q, l.k, l.v);
      EXPECT_EQ(Values(q), Values(both.cpu.Linear(x, l.q)));
      EXPECT_EQ(Values(k), Values(both.cpu.Linear(x, l.k)));
      EXPECT_EQ(Values(v), Values(both.cpu.Linear(x, l.v)));
      const Matrix fused = both.cpu.GatedMlp(x, l.gate, l.up, l.down, Activation::kSilu);
      Matrix gate = both.cpu.Linear(x, l.gate);
      gate = both.cpu.Gate(std::move(gate), both.cpu.Linear(x, l.up), Activation::kSilu);
      EXPECT_EQ(Values(fused), Values(both.cpu.Linear(gate, l.down))) << Name(type) << ", " << n << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, CpuOperations, ::testing::ValuesIn(kAllLevels),
                         [](const auto& p) { return Name(p.param); });

// ---- memory ----

TEST(CpuBackend, StepsAllocateNothingOnceWarm) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers bring their own malloc, which nobody counts";
#endif
  for (int threads : {1, 2}) {
    TinyModel model = ModelOf(DType::kQ4_1);
    const auto pool = std::make_shared<ThreadPool>(threads);
    CpuBackend backend(LoadCpuModel(model.spec, model.tensors, *pool), pool, *FindKernels(BestLevel()),
                       size_t(1) << 40);
    std::vector<SlotId> slots;
    for (int i = 0; i < 4; ++i) slots.push_back(backend.OpenSlot(270, {}));
    const auto step = [&](int rows, int position) {  // one row of each of the first `rows` slots
      const std::vector<TokenId> ids(size_t(rows), position % model.spec.vocab);
      const std::vector<int32_t> pos(size_t(rows), position);
      std::vector<int32_t> wanted(static_cast<size_t>(rows));
      std::iota(wanted.begin(), wanted.end(), 0);
      const Rows r{ids, pos, std::span(slots).first(size_t(rows)), wanted};
      const test::AllocationCount count;
      backend.BeginRows(r);
      const auto logits = Forward(backend, backend.Spec(), backend.ModelWeights(), r);
      EXPECT_EQ(backend.ReadLogits(*logits).size(), size_t(rows) * size_t(model.spec.vocab));
      return count.Get();
    };
    EXPECT_GT(step(4, 0), 0);  // the counter counts
    step(1, 1);
    for (int position = 2; position < 270; ++position)  // across two borders of key blocks

      ASSERT_EQ(step(position % 2 ? 4 : 1, position), 0) << "at " << position;
  }
}

TEST(CpuBackend, EstimatesWhatItTakes) {
  for (DType type : kTypes)
    for (bool tied : {false, true}) {
      TinyModel model = ModelOf(type);
      if (!tied) {
        model.spec.tied_head = false;
        model.tensors.head = model.tensors.embed;
      }
      ThreadPool pool(1);
      const auto loaded = LoadCpuModel(model.spec, model.tensors, pool);
      const CpuMemory memory = EstimateCpuMemory(model.spec, model.tensors, 64);
      EXPECT_GE(loaded->bytes(), memory.weights);
      EXPECT_LT(loaded->bytes() - memory.weights, size_t(2) << 20);  // the last page
      const auto device = OpenCpuDevice(loaded, std::make_shared<ThreadPool>(1));
      EXPECT_EQ(device->Info().kv_bytes_per_token, memory.kv_per_token);
    }
}

TEST(CpuBackend, RefusesWhatDoesNotFit) {
  TinyModel model = ModelOf(DType::kF32);
  const auto pool = std::make_shared<ThreadPool>(1);
  const auto loaded = LoadCpuModel(model.spec, model.tensors, *pool);
  const size_t per_token = EstimateCpuMemory(model.spec, model.tensors, 1).kv_per_token;
  const auto device = OpenCpuDevice(loaded, pool, {.kv_limit = 1000 * per_token});
  const SlotId first = device->Open(600, {});
  try {
    device->Open(401, {});
    FAIL() << "opened more than the limit";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kOutOfMemory);
  }
  device->Open(400, {});
  device->Close(first);
  device->Open(600, {});
}

TEST(CpuModel, ReportsProgress) {
  TinyModel model = ModelOf(DType::kQ8_0);
  ThreadPool pool(2);
  std::vector<size_t> done;
  const auto loaded = LoadCpuModel(model.spec, model.tensors, pool, [&](size_t bytes, size_t total) {
    EXPECT_LE(bytes, total);
    done.push_back(bytes);
  });
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), loaded->packed_bytes());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

// ---- several instances ----

TEST(CpuDevices, ShareAModelAndRunAtTheSameTime) {
  TinyModel model = ModelOf(DType::kQ4_1);
  ThreadPool loader(1);
  const auto loaded = LoadCpuModel(model.spec, model.tensors, loader);
  const auto ids = SomeTokens(70, model.spec.vocab);
  const auto want = Alone(*OpenCpuDevice(loaded, std::make_shared<ThreadPool>(1)), ids, 70);
  std::vector<float> got[3];
  std::vector<std::thread> threads;
  for (auto& result : got)
    threads.emplace_back([&] {
      const auto device = OpenCpuDevice(loaded, std::make_shared<ThreadPool>(2));
      for (int i = 0; i < 5; ++i) result = Alone(*device, ids, 9);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : got) EXPECT_EQ(result, want);
}

// One device decodes and publishes, another thread reads what it published and lets go of it at any moment.
TEST(CpuDevices, SegmentsAreReadWhileTheSlotGoesOn) {
  TinyModel model = ModelOf(DType::kF16);
  const auto pool = std::make_shared<ThreadPool>(1);
  const auto loaded = LoadCpuModel(model.spec, model.tensors, *pool);
  const auto device = OpenCpuDevice(loaded, pool);
  const auto ids = SomeTokens(40, model.spec.vocab);
  const SlotId slot = device->Open(64, {});
  for (int round = 0; round < 30; ++round) {
    test::Feed(*device, slot, ids, 0, 40, 40);
    std::vector<float> before(16), after(16);
    KvSegment segment = device->Export(slot, 0, 40);
    ReadHead(segment.layers[1], segment.layers[1].k, 0, 30, before);
    std::thread reader([&, segment = std::move(segment)]() mutable {
      for (int i = 0; i < 100; ++i) ReadHead(segment.layers[1], segment.layers[1].k, 0, 30, after);
      segment = {};
    });
    device->Truncate(slot, 0);
    test::Feed(*device, slot, SomeTokens(40, model.spec.vocab, unsigned(round)), 0, 40, 13);
    device->Truncate(slot, 0);
    reader.join();
    EXPECT_EQ(before, after);
  }
}

}  // namespace
}  // namespace pd::cpu
