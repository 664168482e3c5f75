#include "planning/calibration.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/json.h"
#include "planning/overlap.h"
#include "planning/planner.h"
#include "planning/timing.h"
#include "tests/expect_error.h"
#include "tests/serving/cpu_engine.h"

namespace pd::test {
namespace {

ModelSpec LongSpec() {
  ModelSpec spec = MixedSpec();
  spec.max_context = 3000;
  return spec;
}

TEST(Timing, IsTheMedianOfWhatCounts) {
  int call = 0;
  const double times[] = {100, 3, 1, 2, 9};
  const Timing timing = TimeRuns({4}, [&] { return times[call++]; });
  EXPECT_EQ(timing.first_ms, 100);
  EXPECT_EQ(timing.median_ms, 2.5);
  EXPECT_EQ(timing.least_ms, 1);
  EXPECT_EQ(timing.most_ms, 9);
}

TEST(Timing, GoesOnUntilItTookLongEnough) {
  int calls = 0;
  const auto run = [&] { return ++calls, 2.0; };
  TimeRuns({3, 9}, run);
  EXPECT_EQ(calls, 1 + 5);
  TimeRuns({3, 1}, run);
  EXPECT_EQ(calls, 6 + 1 + 3);
}

CalibrationDevices DevicesOf(const CpuModelForTests& model, int lanes) {
  EngineDevices devices = model.Devices(lanes, {}, 512);
  return {std::move(devices.prefill), std::move(devices.decode), {}};
}

TEST(Calibrate, MeasuresEverythingThatAPlanNeeds) {
  const CpuModelForTests model(LongSpec());
  for (const int lanes : {1, 2}) {
    int last = 0, total = 0;
    const MachineCosts costs = Calibrate(DevicesOf(model, lanes), model.spec(), {[&](int done, int of) {
                                           EXPECT_EQ(done, last + 1);
                                           last = done, total = of;
                                         }});
    EXPECT_EQ(last, total);
    ASSERT_EQ(costs.units.size(), 1u);
    EXPECT_EQ(costs.units[0].lane, lanes - 1);
    EXPECT_EQ(costs.direct.lane, 0);
    for (const PrefillCost* cost : {&costs.units[0], &costs.direct}) {
      EXPECT_GE(cost->chunk.size(), 4u);
      EXPECT_FALSE(cost->later.empty());
      for (const auto& [count, ms] : cost->chunk) EXPECT_GT(ms, 0) << count;
      EXPECT_TRUE(std::ranges::is_sorted(cost->chunk, {}, [](const auto& point) { return point.second; }));
      EXPECT_GT(cost->PromptMs(0, 1500, 512), cost->PromptMs(0, 500, 512));
    }
    EXPECT_GT(costs.units[0].HandoffMs(512), 0);
    EXPECT_GE(costs.decode.step.size(), 3u);
    // It survives its file, and a planner can use it.
    const MachineCosts read = ReadMachineCosts(ParseJson(ToJson(costs).dump(), "file"), "file");
    EXPECT_FALSE(Planner(read).Choose({1, 0, 100, 512, 0, {}, {}}).why.empty());
  }
}

// A device of fixed shapes. A call takes the time of its shape, however few tokens it computes.
class ShapedPrefill final : public PrefillDevice {
 public:
  explicit ShapedPrefill(std::unique_ptr<DecodeDevice> device) : device_(std::move(device)) {}
  const DeviceInfo& Info() const override { return device_.Info(); }
  std::optional<std::string> Refuses(const Variant& variant) const override {
    return device_.Refuses(variant);
  }
  std::vector<PrefillShape> Shapes() const override { return {{32, 0}, {32, 256}, {128, 0}, {128, 256}}; }
  void SetCallCost(CallCost cost) override { cost_ = std::move(cost); }
  int Reach(int first) const override { return pd::Reach(Shapes(), first); }
  std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                        std::span<const KvSegment> prefix) override {
    return std::make_unique<Session>(*this, device_.Begin(capacity, variant, prefix));
  }
  double CostOf(const PrefillShape& shape) const { return cost_(shape); }
  // Of a call, in ms.
  static int Time(const PrefillShape& shape) { return shape.tokens / 16 + shape.history / 64; }

 private:
  class Session final : public PrefillSession {
   public:
    Session(ShapedPrefill& device, std::unique_ptr<PrefillSession> session)
        : device_(device), session_(std::move(session)) {}
    KvSegment Run(std::span<const TokenId> chunk, int first) override {
      for (const PlannedCall& call : PlanCalls(device_.Shapes(), first, int(chunk.size()), device_.cost_))
        std::this_thread::sleep_for(std::chrono::milliseconds(Time(call.shape)));
      return session_->Run(chunk, first);
    }
    void Close() override { session_->Close(); }

   private:
    ShapedPrefill& device_;
    std::unique_ptr<PrefillSession> session_;
  };
  PrefillVia device_;
  CallCost cost_;
};

TEST(Calibrate, MeasuresEachFunctionOfADeviceOfFixedShapes) {
  const CpuModelForTests model(LongSpec());
  CalibrationDevices devices = DevicesOf(model, 2);
  devices.units[0] = std::make_unique<ShapedPrefill>(model.Open(1));
  int last = 0, total = 0;
  const MachineCosts costs = Calibrate(std::move(devices), model.spec(), {[&](int done, int of) {
                                         EXPECT_EQ(done, last + 1);
                                         last = done, total = of;
                                       }});
  EXPECT_EQ(last, total);
  const PrefillCost& cost = costs.units[0];
  EXPECT_TRUE(cost.chunk.empty());
  ASSERT_EQ(cost.calls.size(), 4u);
  for (const PrefillCost::Call& call : cost.calls) EXPECT_GE(call.ms, ShapedPrefill::Time(call.shape));
  EXPECT_GE(cost.PromptMs(0, 384, 128), 8 + 12 + 12);
  EXPECT_GT(cost.HandoffMs(128), 0);

  // The device is told, if it has these functions.
  ShapedPrefill device(model.Open(0));
  device.SetCallCost([](const PrefillShape&) { return 7.0; });
  PrefillCost fewer = cost;
  fewer.calls.pop_back();
  UseMeasuredCalls(device, fewer);
  EXPECT_EQ(device.CostOf({128, 256}), 7.0);
  UseMeasuredCalls(device, cost);
  EXPECT_EQ(device.CostOf({128, 256}), cost.calls[3].ms);
}

TEST(Calibrate, EndsWhenToldTo) {
  const CpuModelForTests model(LongSpec());
  const auto stop = [](int done, int) {
    if (done == 3) throw Fail(ErrorKind::kCancelled, "enough");
  };
  EXPECT_THROW(Calibrate(DevicesOf(model, 2), model.spec(), {stop}), Error);
}

// A device that cannot close its slots fails the calibration; it does not end the process.
TEST(Calibrate, ReportsWhatDoesNotClose) {
  const CpuModelForTests model(LongSpec());
  EngineDevices devices = model.Devices(1, {.close = true}, 512);
  ExpectError(ErrorKind::kDevice, {"a fault of closing"}, [&] {
    Calibrate({std::move(devices.prefill), std::move(devices.decode), {}}, model.spec(), {});
  });
}

TEST(Calibrate, TakesShortContexts) {
  ModelSpec spec = MixedSpec();
  spec.max_context = 70;
  const CpuModelForTests model(spec);
  const MachineCosts costs = Calibrate(DevicesOf(model, 2), spec, {});
  EXPECT_EQ(costs.direct.chunk.back().first, 65);
  EXPECT_TRUE(costs.direct.later.empty());
}

TEST(Overlap, WatchesTextsAroundAPrompt) {
  const CpuModelForTests model(LongSpec());
  Engine engine(model.spec(), model.Devices(2));
  const OverlapOptions options{.streams = 2, .prompt = 400, .chunk = 64, .text = 2500, .alone_ms = 30};
  const OverlapResult result = MeasureOverlap(engine, options, [] {});
  EXPECT_GT(result.alone.tokens_per_s, 0);
  EXPECT_GT(result.decode_ratio, 0);
  EXPECT_GT(result.first_token_ms, 0);
  EXPECT_EQ(result.prompt.prefill_tokens, 399);
  EXPECT_TRUE(std::ranges::is_sorted(result.alone.gaps_ms));
  EXPECT_GT(result.beside.context, 2);
  EXPECT_EQ(result.alone.context, result.beside.context);
  const OverlapOptions too_long{.prompt = 4000};
  EXPECT_THROW(MeasureOverlap(engine, too_long, [] {}), Error);
}

}  // namespace
}  // namespace pd::test
