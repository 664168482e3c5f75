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
#include "tests/expect_error.h"
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
    MlpOf(layer).hidden = 96;
    if (AttentionOf(layer).q_width() % kGroup != 0)
      AttentionOf(layer).heads *= 2, AttentionOf(layer).kv_heads *= 2;
  }
  TinyModel model = RandomModel(spec);
  unsigned seed = 0;
  ForEachWeight(spec, model.tensors, [&](TensorView& t, const WeightInfo& info) {
    if (info.shape.size() == 2) {
      t = test::RandomTensor(type, info.shape[0], info.shape[1], ++seed);
      t.name = info.Name();
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
  Tensor Logits(const Tensor& x, const Weight& head, std::optional<float> cap, float scale,
                const Rows& rows) {
    return ReferenceOps::Logits(Rounded(x, double(kRefineAll)), head, cap, scale, rows);
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
// whole step, and with it its row and, through its keys and values, all later ones of its sequence. That is
// rare: of many short sequences, most rows agree to what float sums lose.
TEST(CpuBackend, MostRowsAgreeWithAReferenceThatRoundsAsItDoes) {
  for (DType type : kTypes) {
    TinyModel model = ModelOf(type);
    const int sequences = 8, tokens = 5, vocab = model.spec.vocab;
    RoundingReference truth(model, IsQuantised(type));
    const auto device = OpenWith(model, 2);
    const auto ids = SomeTokens(sequences * tokens, vocab);
    std::vector<SlotId> slots;
    std::vector<int32_t> pos, all(ids.size());
    std::iota(all.begin(), all.end(), 0);
    for (int s = 0; s < sequences; ++s) {
      const SlotId slot = truth.OpenSlot(tokens, {});
      ASSERT_EQ(device->Open(tokens, {}), slot);
      for (int t = 0; t < tokens; ++t) slots.push_back(slot), pos.push_back(t);
    }
    const Rows rows{ids, pos, slots, all};
    const auto want = truth.ReadLogits(*Forward(truth, model.spec, truth.ModelWeights(), rows));
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
  AttentionSpec& a = AttentionOf(layer);
  a.heads = heads, a.kv_heads = kv_heads, a.head_dim = head_dim;
  a.rope = RopeSpec{10000, head_dim / 2 * 2};
  if (head_dim < 2) a.rope.reset();
  a.qk_norm = QkNorm{{1e-5f}};
  MlpOf(layer).hidden = width + 3;
  spec.layers = {layer};
  return spec;
}

TEST_P(CpuOperations, AgreeWithReferenceAtEverySize) {
  const double bound = test::OpError("cpu_f32");
  for (int n = 1; n <= 17; ++n) {
    TinyModel model = RandomModel(OddSpec(n + 4, 6, n % 3 == 0 ? 3 : n % 2 + 1, n));
    Both both(model, GetParam());
    const auto& a = AttentionOf(model.spec.layers[0]);
    const auto& cw = both.cpu.ModelWeights();
    const auto& tw = both.truth.ModelWeights();
    const auto& cl = AttentionOf(cw.layers[0]);
    const auto& tl = AttentionOf(tw.layers[0]);
    const auto& cm = MlpOf(cw.layers[0]);
    const auto& tm = MlpOf(tw.layers[0]);
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
    auto h = both.cpu.Norm(x, cw.layers[0].pre_mixer, *model.spec.layers[0].pre_mixer);
    auto th = both.truth.Norm(tx, tw.layers[0].pre_mixer, *model.spec.layers[0].pre_mixer);
    expect(h, th, "norm");
    auto [q, k, v] = both.cpu.Qkv(h, cl.q, *cl.k, *cl.v);
    EXPECT_EQ(Values(q), Values(both.cpu.Linear(h, cl.q)));  // fused: the same bits
    EXPECT_EQ(Values(k), Values(both.cpu.Linear(h, *cl.k)));
    EXPECT_EQ(Values(v), Values(both.cpu.Linear(h, *cl.v)));
    auto tq = both.truth.Linear(th, tl.q), tk = both.truth.Linear(th, *tl.k),
         tv = both.truth.Linear(th, *tl.v);
    expect(q, tq, "linear");
    q = both.cpu.NormHeads(q, cl.q_norm, a.qk_norm->norm, a.heads);
    tq = both.truth.NormHeads(tq, tl.q_norm, a.qk_norm->norm, a.heads);
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
    for (std::optional<WindowSpec> window : {std::optional<WindowSpec>(), std::optional(WindowSpec{3})})
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
      const GateSpec spec{.act = act};
      const auto fused = both.cpu.GatedMlp(h, *cm.gate, cm.up, cm.down, spec);
      auto gate = both.cpu.Linear(h, *cm.gate);
      auto tgate = both.truth.Linear(th, *tm.gate);
      const auto up = both.cpu.Linear(h, cm.up);
      const auto tup = both.truth.Linear(th, tm.up);
      gate = both.cpu.Gate(std::move(gate), &up, spec);
      tgate = both.truth.Gate(tgate, &tup, spec);
      expect(gate, tgate, "gate");
      EXPECT_EQ(Values(fused), Values(both.cpu.Linear(gate, cm.down)));
      expect(both.cpu.Gate(both.cpu.Linear(h, cm.up), nullptr, spec), both.truth.Gate(tup, nullptr, spec),
             "activation alone");
    }
    x = both.cpu.Add(std::move(x), h, 1), tx = both.truth.Add(tx, th, 1);
    expect(x, tx, "add");
    x = both.cpu.Add(std::move(x), h, 0.22f), tx = both.truth.Add(tx, th, 0.22f);
    expect(x, tx, "add, scaled");
    for (const NormSpec& norm :
         {NormSpec{.eps = 1e-5f, .mean = true}, NormSpec{.eps = 1e-5f, .gain = false}}) {
      NormWeights<CpuWeight> gain;
      NormWeights<ReferenceOps::Weight> tgain;
      if (norm.gain) gain = cw.layers[0].pre_mixer, tgain = tw.layers[0].pre_mixer;
      expect(both.cpu.Norm(x, gain, norm), both.truth.Norm(tx, tgain, norm),
             norm.mean ? "LayerNorm" : "no gain");
    }
    for (const auto& [cap, scale] :
         {std::pair(std::optional<float>(), 1.f), std::pair(std::optional(3.f), 1.f),
          std::pair(std::optional(3.f), 0.3f)}) {
      const Matrix logits = both.cpu.Logits(x, cw.HeadOrEmbed(), cap, scale, rows);
      const auto want = both.truth.Logits(tx, tw.HeadOrEmbed(), cap, scale, rows);
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
      const auto& l = AttentionOf(w.layers[0]);
      const auto& m = MlpOf(w.layers[0]);
      const auto [q, k, v] = both.cpu.Qkv(x, l.q, *l.k, *l.v);
      EXPECT_EQ(Values(q), Values(both.cpu.Linear(x, l.q)));
      EXPECT_EQ(Values(k), Values(both.cpu.Linear(x, *l.k)));
      EXPECT_EQ(Values(v), Values(both.cpu.Linear(x, *l.v)));
      const Matrix fused = both.cpu.GatedMlp(x, *m.gate, m.up, m.down, {});
      Matrix gate = both.cpu.Linear(x, *m.gate);
      const Matrix up = both.cpu.Linear(x, m.up);
      gate = both.cpu.Gate(std::move(gate), &up, {});
      EXPECT_EQ(Values(fused), Values(both.cpu.Linear(gate, m.down))) << Name(type) << ", " << n << " rows";
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
      EXPECT_EQ(device->Info().memory.kv, DType::kF16);
    }
}

TEST(CpuBackend, RefusesWhatDoesNotFit) {
  TinyModel model = ModelOf(DType::kF32);
  const auto pool = std::make_shared<ThreadPool>(1);
  const auto loaded = LoadCpuModel(model.spec, model.tensors, *pool);
  const size_t per_token = MemoryBytes(model.spec, kCpuMemory, 1);
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

TEST(CpuBackend, EndsAStepBetweenLayersWhenCancelled) {
  TinyModel model = ModelOf(DType::kQ8_0);
  const auto pool = std::make_shared<ThreadPool>(1);
  const auto loaded = LoadCpuModel(model.spec, model.tensors, *pool);
  int asked = 0, stop_at = -1;
  const auto device = OpenCpuDevice(loaded, pool, {.cancelled = [&] { return asked++ == stop_at; }});
  const auto ids = SomeTokens(20, model.spec.vocab);
  const auto want = Alone(*OpenCpuDevice(loaded, pool), ids, 20);
  const SlotId slot = device->Open(20, {});
  for (int layer = 0; layer < int(model.spec.layers.size()); ++layer) {
    device->Truncate(slot, 0);
    test::Feed(*device, slot, ids, 0, 10, 10);
    asked = 0, stop_at = layer;
    test::ExpectError(ErrorKind::kCancelled, {"interrupted"},
                      [&] { test::Feed(*device, slot, ids, 10, 20, 10); });
    EXPECT_EQ(asked, layer + 1);
    stop_at = -1;
    EXPECT_EQ(device->Length(slot), 10);
    EXPECT_EQ(test::Feed(*device, slot, ids, 10, 20, 10), want) << "cancelled in layer " << layer;
  }
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
    ReadHead(segment.kv(1), segment.kv(1).k, 0, 30, before);
    std::thread reader([&, segment = std::move(segment)]() mutable {
      for (int i = 0; i < 100; ++i) ReadHead(segment.kv(1), segment.kv(1).k, 0, 30, after);
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
