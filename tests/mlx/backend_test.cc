// What the device does beyond the properties that every device has (tests/device): failures, limits, memory,
// options.
#include "mlx/mlx_backend.h"

#include <gtest/gtest.h>
#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "device/local_device.h"
#include "mlx/handoff.h"
#include "tests/device_checks.h"
#include "tests/error_table.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

using test::Alone;
using test::Feed;
using test::SomeTokens;

ErrorKind KindOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.kind();
  }
  ADD_FAILURE() << "nothing thrown";
  return ErrorKind::kCancelled;
}

enum class Fault {
  kNone,
  kBuilding,    // the graph cannot be built
  kSubmitting,  // an operation refuses when its turn comes to be submitted: a kernel that does not compile
  kComputing,   // an operation fails while it runs, when Submit has returned
};

class Failing : public mx::UnaryPrimitive {
 public:
  explicit Failing(Fault fault) : UnaryPrimitive(mx::default_stream(mx::default_device())), fault_(fault) {}
  void eval_cpu(const std::vector<mx::array>&, mx::array& out) override {
    if (fault_ == Fault::kSubmitting) throw std::runtime_error("planted\nfailure");
    out.set_data(mx::allocator::malloc(out.nbytes()));
    mx::cpu::get_command_encoder(stream()).dispatch([] { throw std::runtime_error("planted"); });
  }
  void eval_gpu(const std::vector<mx::array>& inputs, mx::array& out) override { eval_cpu(inputs, out); }
  const char* name() const override { return "Failing"; }

 private:
  Fault fault_;
};

mx::array Faulty(const mx::array& y, Fault fault) {
  if (fault == Fault::kBuilding) throw std::invalid_argument("planted");
  if (fault == Fault::kNone) return y;
  return mx::array(y.shape(), y.dtype(), std::make_shared<Failing>(fault), {y});
}

class FaultyKernels final : public MlxKernels {
 public:
  explicit FaultyKernels(std::shared_ptr<const Fault> fault) : fault_(std::move(fault)) {}
  mx::array Attend(const AttentionSpec& a, const mx::array& q, const MlxPlan& plan,
                   const MlxLayerCache& cache) override {
    return Faulty(MlxKernels::Attend(a, q, plan, cache), *fault_);
  }

 private:
  std::shared_ptr<const Fault> fault_;
};

// Rows join the arrays of the cache where those lie, as with kernels on a GPU, but at once. The head is
// faulty.
class InPlaceKernels final : public MlxKernels {
 public:
  explicit InPlaceKernels(std::shared_ptr<const Fault> fault) : fault_(std::move(fault)) {}
  bool WritesInPlace() const override { return true; }
  mx::array Place(const MlxPlacement& p, const MlxPlan& plan, MlxLayerCache& cache) override {
    MlxLayerCache updated = cache;
    mx::array placed = MlxKernels::Place(p, plan, updated);
    mx::eval(placed, updated.k, updated.v);
    std::memcpy(cache.k.data<std::byte>(), updated.k.data<std::byte>(), cache.k.nbytes());
    std::memcpy(cache.v.data<std::byte>(), updated.v.data<std::byte>(), cache.v.nbytes());
    return placed;
  }
  MlxChoice Greedy(const mx::array& logits) override { return MlxKernels::Greedy(Faulty(logits, *fault_)); }

 private:
  std::shared_ptr<const Fault> fault_;
};

class MlxBackendTest : public ::testing::Test {
 protected:
  MlxBackendTest() : model_(test::RandomModel(test::MixedSpec())) {
    loaded_ = LoadMlxModel(model_.spec, model_.tensors);
    DeviceInfo info;
    info.name = "mlx", info.max_rows = 256;
    device_ = std::make_unique<LocalDevice<MlxBackend>>(
        MlxBackend(loaded_, std::make_unique<FaultyKernels>(fault_)), info);
  }
  StepId Step(SlotId slot, TokenId id, int at, const SampleSpec& rule = {}) {
    const TokenId ids[] = {id};
    const int32_t pos[] = {at}, wanted[] = {0};
    const SlotId slots[] = {slot};
    return device_->Submit({{ids, pos, slots, wanted}, std::span(&rule, 1)});
  }

  test::TinyModel model_;
  std::shared_ptr<const MlxModel> loaded_;
  std::shared_ptr<Fault> fault_ = std::make_shared<Fault>(Fault::kNone);
  std::unique_ptr<DecodeDevice> device_;
};

TEST_F(MlxBackendTest, AFailureLosesTheOpenSlotsOnly) {
  const auto ids = SomeTokens(20, model_.spec.vocab);
  const auto want = Alone(*device_, ids, 20);
  for (Fault fault : {Fault::kSubmitting, Fault::kComputing}) {
    const SlotId a = device_->Open(64, {}), b = device_->Open(64, {});
    Feed(*device_, a, ids, 0, 10, 10);
    Feed(*device_, b, ids, 0, 10, 10);
    *fault_ = fault;
    EXPECT_EQ(KindOf([&] { Feed(*device_, a, ids, 10, 11, 1); }), ErrorKind::kDevice);
    *fault_ = Fault::kNone;
    for (SlotId slot : {a, b}) {
      EXPECT_EQ(device_->Length(slot), 10);
      EXPECT_EQ(KindOf([&] { Feed(*device_, slot, ids, 10, 11, 1); }), ErrorKind::kDevice);
      EXPECT_EQ(KindOf([&] { device_->Export(slot, 0, 10); }), ErrorKind::kDevice);
    }
    EXPECT_LE(test::RelativeError(Alone(*device_, ids, 20), want), test::LogitError("mlx_f32"))
        << "beside lost slots";
    device_->Close(a), device_->Close(b);
    EXPECT_LE(test::RelativeError(Alone(*device_, ids, 20), want), test::LogitError("mlx_f32"))
        << "after them";
  }
}

// Where steps write in place, a failure is the failing steps' own: others go on as if nothing had been.
TEST_F(MlxBackendTest, AFailureLeavesOtherSlotsAlone) {
  DeviceInfo info;
  info.name = "mlx", info.max_rows = 256;
  device_ = std::make_unique<LocalDevice<MlxBackend>>(
      MlxBackend(loaded_, std::make_unique<InPlaceKernels>(fault_)), info);
  const auto ids = SomeTokens(20, model_.spec.vocab);
  const auto want = Alone(*device_, ids, 20);
  for (Fault fault : {Fault::kSubmitting, Fault::kComputing}) {
    const SlotId bad = device_->Open(64, {}), good = device_->Open(64, {});
    Feed(*device_, bad, ids, 0, 10, 10);
    Feed(*device_, good, ids, 0, 12, 12);
    *fault_ = fault;
    EXPECT_EQ(KindOf([&] { device_->Collect(Step(bad, 1, 10)); }), ErrorKind::kDevice);
    *fault_ = Fault::kNone;
    EXPECT_EQ(KindOf([&] { Feed(*device_, bad, ids, device_->Length(bad), 20, 1); }), ErrorKind::kDevice);
    EXPECT_LE(test::RelativeError(Feed(*device_, good, ids, 12, 20, 4), want), test::LogitError("mlx_f32"));
    device_->Close(bad), device_->Close(good);
  }
}

// The step submitted on top of a failing one reads what never came to be: it fails too, and gives no token.
TEST_F(MlxBackendTest, AFailureTakesTheStepBehindItAlong) {
  const SlotId slot = device_->Open(64, {});
  Feed(*device_, slot, SomeTokens(5, model_.spec.vocab), 0, 5, 5);
  const StepId first = Step(slot, 1, 5);
  *fault_ = Fault::kComputing;
  std::optional<StepId> failing, behind;
  const auto submit = [&](TokenId id, int at) -> std::optional<StepId> {
    try {
      return Step(slot, id, at);
    } catch (const Error& e) {  // told early, when the operation failed before the last one was submitted
      EXPECT_EQ(e.kind(), ErrorKind::kDevice);
      return std::nullopt;
    }
  };
  failing = submit(kLastSampled, 6);
  *fault_ = Fault::kNone;
  if (failing) {
    EXPECT_EQ(device_->Collect(first).size(), 1u);
    behind = submit(kLastSampled, 7);
    EXPECT_EQ(KindOf([&] { device_->Collect(*failing); }), ErrorKind::kDevice);
    if (behind) {
      EXPECT_EQ(KindOf([&] { device_->Collect(*behind); }), ErrorKind::kDevice);
    }
  } else {
    EXPECT_EQ(KindOf([&] { device_->Collect(first); }), ErrorKind::kDevice);
  }
  device_->Close(slot);
  const SlotId again = device_->Open(64, {});
  EXPECT_EQ(device_->Collect(Step(again, 1, 0)).size(), 1u);
}

TEST_F(MlxBackendTest, AFailureOfAStepUnderWay) {
  const SlotId slot = device_->Open(64, {});
  Feed(*device_, slot, SomeTokens(5, model_.spec.vocab), 0, 5, 5);
  *fault_ = Fault::kSubmitting;
  EXPECT_EQ(KindOf([&] { Step(slot, 1, 5); }), ErrorKind::kDevice);
  *fault_ = Fault::kNone;
  device_->Close(slot);

  const SlotId again = device_->Open(64, {});
  Feed(*device_, again, SomeTokens(5, model_.spec.vocab), 0, 5, 5);
  *fault_ = Fault::kComputing;  // told by Submit when the operation fails before the last one is submitted
  EXPECT_EQ(KindOf([&] { device_->Collect(Step(again, 1, 5)); }), ErrorKind::kDevice);
  *fault_ = Fault::kNone;
  EXPECT_EQ(KindOf([&] { Step(again, 2, device_->Length(again)); }), ErrorKind::kDevice);
  device_->Close(again);

  const SlotId third = device_->Open(64, {});
  EXPECT_EQ(device_->Collect(Step(third, 1, 0)).size(), 1u);
}

TEST_F(MlxBackendTest, AFailureBeforeComputingLosesNothing) {
  const auto ids = SomeTokens(20, model_.spec.vocab);
  const auto want = Alone(*device_, ids, 20);
  const SlotId slot = device_->Open(64, {});
  Feed(*device_, slot, ids, 0, 10, 10);
  *fault_ = Fault::kBuilding;
  EXPECT_THROW(Feed(*device_, slot, ids, 10, 20, 10),
               std::invalid_argument);  // OpenMlxDevice makes it an Error
  *fault_ = Fault::kNone;
  EXPECT_EQ(device_->Length(slot), 10);
  EXPECT_LE(test::RelativeError(Feed(*device_, slot, ids, 10, 20, 10), want), test::LogitError("mlx_f32"));
}

// Steps sampled on the host between steps sampled on the device: the same greedy text, and penalties see the
// token that the host has not.
TEST_F(MlxBackendTest, HostSamplingWithinAPipeline) {
  const auto prompt = SomeTokens(9, model_.spec.vocab);
  const auto generate = [&](const std::function<SampleSpec(int)>& rule) {
    const SlotId slot = device_->Open(64, {});
    Feed(*device_, slot, prompt, 0, 8, 8);
    std::vector<TokenId> tokens;
    StepId running = Step(slot, prompt[8], 8, rule(0));
    for (int i = 9; i < 30; ++i) {
      const StepId next = Step(slot, kLastSampled, i, rule(i - 8));
      tokens.push_back(device_->Collect(running).at(0).sampled.token);
      running = next;
    }
    const SampledRow last = device_->Collect(running).at(0);
    EXPECT_EQ(last.slot, slot);
    tokens.push_back(last.sampled.token);
    device_->Close(slot);
    return tokens;
  };
  const auto greedy = generate([](int) { return SampleSpec(); });
  EXPECT_EQ(generate([](int i) {
              SampleSpec s;
              s.top_logprobs = i % 3 == 0 ? 2 : 0;
              return s;
            }),
            greedy);
  const auto forbidden = generate([](int) {
    SampleSpec s;
    s.penalties.repetition = 1000;
    return s;
  });
  for (size_t i = 1; i < forbidden.size(); ++i) EXPECT_NE(forbidden[i], forbidden[i - 1]) << i;
}

TEST_F(MlxBackendTest, LogitsThatAreNoNumbers) {
  test::TinyModel broken = test::RandomModel(model_.spec);
  auto gains = std::make_shared<std::vector<float>>(32, 1e38f);
  broken.tensors.final_norm.gain->bytes = std::as_bytes(std::span(*gains));
  broken.tensors.final_norm.gain->owner = gains;
  MlxOptions options;
  options.activations = DType::kF16;
  const auto device = OpenMlxDevice(LoadMlxModel(broken.spec, broken.tensors, options));
  const SlotId slot = device->Open(8, {});
  const TokenId ids[] = {1};
  const int32_t zero[] = {0};
  const SampleSpec rule[] = {{}};
  const StepId step = device->Submit({{ids, zero, std::span(&slot, 1), zero}, rule});
  EXPECT_EQ(KindOf([&] { device->Collect(step); }), ErrorKind::kDevice);
}

TEST_F(MlxBackendTest, MemoryIsPredicted) {
  const size_t limit = mx::set_memory_limit(mx::get_active_memory() + (1 << 20));
  EXPECT_EQ(KindOf([&] { device_->Open(model_.spec.max_context, {}); }), ErrorKind::kOutOfMemory);
  EXPECT_NO_THROW(device_->Close(device_->Open(64, {})));
  mx::set_memory_limit(mx::get_active_memory() + 100);
  EXPECT_EQ(KindOf([&] { LoadMlxModel(model_.spec, model_.tensors); }), ErrorKind::kOutOfMemory);
  mx::set_memory_limit(limit);
}

TEST_F(MlxBackendTest, OptionsThatMakeNoSense) {
  MlxOptions bits, type, rows;
  bits.quantise_bits = 3;
  type.activations = DType::kQ8_0;
  rows.max_rows = 0;
  for (const MlxOptions& options : {bits, type, rows})
    EXPECT_EQ(KindOf([&] { LoadMlxModel(model_.spec, model_.tensors, options); }), ErrorKind::kUnsupported);
}

TEST_F(MlxBackendTest, WhatAModelTakesIsKnownBefore) {
  size_t floats = 0;
  ForEachWeight(model_.spec, model_.tensors,
                [&](TensorView& t, const WeightInfo&) { floats += t.bytes.size() / 4; });
  for (DType type : {DType::kF32, DType::kF16}) {
    MlxOptions options;
    options.activations = type;
    const MlxMemory memory = EstimateMlxMemory(model_.spec, model_.tensors, options);
    const DeviceInfo info = OpenMlxDevice(LoadMlxModel(model_.spec, model_.tensors, options))->Info();
    EXPECT_EQ(memory.weights, floats * size_t(Info(type).block_bytes));
    EXPECT_EQ(info.weight_bytes, memory.weights);
    EXPECT_EQ(info.memory.kv, memory.memory.kv);
    EXPECT_EQ(memory.shared, std::string(MlxBackendName()) != "cuda");
  }
}

TEST_F(MlxBackendTest, WhatLoadingChangedIsSaid) {
  EXPECT_TRUE(LoadNotes(*loaded_).empty());
  MlxOptions options;
  options.activations = DType::kF16;
  const auto narrowed = LoadMlxModel(model_.spec, model_.tensors, options);
  ASSERT_EQ(LoadNotes(*narrowed).size(), 1u);
  EXPECT_NE(LoadNotes(*narrowed)[0].find("f32 matrices are held as f16"), std::string::npos)
      << LoadNotes(*narrowed)[0];
}

TEST_F(MlxBackendTest, StatusNamesTheLibrary) {
  const MlxStatus status = GetMlxStatus();
  EXPECT_TRUE(status.usable) << status.problem;
  EXPECT_EQ(status.version, "0.32.4");
  EXPECT_GT(status.memory_bytes, 0u);
}

// Both ways of a segment into arrays, from layouts that producers have: by head, by token, dimension first.
TEST(MlxHandoff, WrappedAndUploadedAreTheSegment) {
  const ModelSpec spec = test::MixedSpec();
  constexpr int kTokens = 5;
  for (const auto layout : {0, 1, 2}) {
    KvSegment segment{.first = 7, .count = kTokens};
    auto memory = std::make_shared<std::vector<std::vector<uint16_t>>>();
    std::vector<std::vector<float>> want;
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const AttentionSpec& a = AttentionOf(spec.layers[i]);
      KvLayerView view{.dtype = DType::kF16};
      if (layout == 0)
        view.head_stride = kTokens * a.head_dim, view.token_stride = a.head_dim, view.dim_stride = 1;
      if (layout == 1) view.head_stride = a.head_dim, view.token_stride = a.kv_width(), view.dim_stride = 1;
      if (layout == 2)
        view.head_stride = kTokens * a.head_dim, view.token_stride = 1, view.dim_stride = kTokens;
      for (const bool value : {false, true}) {
        std::vector<uint16_t> stored(size_t(a.kv_width() * kTokens));
        std::vector<float> floats;
        for (int h = 0; h < a.kv_heads; ++h)
          for (int t = 0; t < kTokens; ++t)
            for (int d = 0; d < a.head_dim; ++d) {
              floats.push_back(float(int(i) * 100 + h * 50 + t * 10 + d) * (value ? -1.f : 1.f));
              stored[size_t(h * view.head_stride + t * view.token_stride + d * view.dim_stride)] =
                  ToF16(floats.back()).bits;
            }
        memory->push_back(std::move(stored));
        want.push_back(std::move(floats));
        (value ? view.v : view.k) = reinterpret_cast<const std::byte*>(memory->back().data());
      }
      segment.layers.push_back(view);
    }
    segment.owner = memory;
    for (const auto& layers : {WrapSegment(spec, segment), UploadSegment(spec, segment)}) {
      ASSERT_EQ(layers.size(), spec.layers.size());
      for (size_t i = 0; i < layers.size(); ++i) {
        const AttentionSpec& a = AttentionOf(spec.layers[i]);
        EXPECT_EQ(layers[i].k.shape(), (mx::Shape{1, a.kv_heads, kTokens, a.head_dim}));
        EXPECT_EQ(ReadFloats(layers[i].k), want[2 * i]) << "layer " << i << ", layout " << layout;
        EXPECT_EQ(ReadFloats(layers[i].v), want[2 * i + 1]) << "layer " << i << ", layout " << layout;
      }
    }
  }
}

// A lane is a thread of its own, and not the one that opened the device.
TEST_F(MlxBackendTest, RunsOnAnotherThreadThanTheOneThatOpenedIt) {
  const auto ids = SomeTokens(20, model_.spec.vocab);
  const auto want = Alone(*device_, ids, 20);
  std::vector<float> got;
  std::thread lane([&] {
    const auto device = OpenMlxDevice(loaded_);
    got = Alone(*device, ids, 7);
    LeaveMlxThread();
  });
  lane.join();
  EXPECT_LE(test::RelativeError(got, want), test::LogitError("mlx_f32"));
  std::thread second([&] {
    got = Alone(*device_, ids, 3);
    LeaveMlxThread();
  });
  second.join();
  EXPECT_LE(test::RelativeError(got, want), test::LogitError("mlx_f32"));
}

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kSlack = size_t(300) << 20;  // it keeps 256 MB of what was freed
#else
constexpr size_t kSlack = size_t(16) << 20;
#endif

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
}

// Requests come and go; after the first rounds nothing grows: not MLX's memory, not the process.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::chrono::seconds kGrowthTime(4);  // their memory is another's
#else
constexpr std::chrono::seconds kGrowthTime(60);
#endif

TEST_F(MlxBackendTest, MemoryDoesNotGrow) {
  const auto prompt = SomeTokens(40, model_.spec.vocab);
  size_t active = 0, cached = 0, resident = 0;
  const auto end = std::chrono::steady_clock::now() + kGrowthTime;
  for (int round = 0; round < 8 || std::chrono::steady_clock::now() < end; ++round) {
    const SlotId slot = device_->Open(300, {});
    Feed(*device_, slot, prompt, 0, 39, 16);
    StepId running = Step(slot, prompt[39], 39);
    for (int i = 40; i < 80; ++i) {
      const StepId next = Step(slot, kLastSampled, i);
      device_->Collect(running);
      running = next;
    }
    device_->Collect(running);
    const KvSegment segment = device_->Export(slot, 0, 60);
    device_->Truncate(slot, 0);
    device_->Import(slot, segment);
    device_->Close(slot);
    if (round == 4)
      active = mx::get_active_memory(), cached = mx::get_cache_memory(), resident = ResidentBytes();
    if (round > 4) {
      EXPECT_LE(mx::get_active_memory(), active + (64 << 10)) << round;
      EXPECT_LE(mx::get_cache_memory(), cached + (8 << 20)) << round;
    }
  }
  if (resident > 0) {
    EXPECT_LE(ResidentBytes(), resident + kSlack);
  }
}

}  // namespace
}  // namespace pd
