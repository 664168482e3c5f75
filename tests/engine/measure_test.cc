#include "engine/measure.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "engine/overlap.h"
#include "engine/planner.h"
#include "tests/engine/cpu_engine.h"

namespace pd::test {
namespace {

ModelSpec LongSpec() {
  ModelSpec spec = MixedSpec();
  spec.max_context = 3000;
  return spec;
}

TEST(DeviceThread, PassesOnWhatIsThrown) {
  bool left = false;
  {
    DeviceThread thread({}, [&] { left = true; });
    std::thread::id first, second;
    thread.Do([&] { first = std::this_thread::get_id(); });
    thread.Do([&] { second = std::this_thread::get_id(); });
    EXPECT_EQ(first, second);
    EXPECT_NE(first, std::this_thread::get_id());
    EXPECT_THROW(thread.Do([] { throw Fail(ErrorKind::kDevice, "broken"); }), Error);
    thread.Do([] {});
  }
  EXPECT_TRUE(left);
}

TEST(Timing, IsTheMedianOfWhatCounts) {
  int call = 0;
  const double times[] = {100, 3, 1, 2, 9};
  const Timing timing = TimeRuns(4, [&] { return times[call++]; });
  EXPECT_EQ(timing.first_ms, 100);
  EXPECT_EQ(timing.median_ms, 2.5);
  EXPECT_EQ(timing.least_ms, 1);
  EXPECT_EQ(timing.most_ms, 9);
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
    // Survives its file, and a planner can do with it.
    const MachineCosts read = ReadMachineCosts(ParseJson(ToJson(costs).dump(), "file"), "file");
    EXPECT_FALSE(Planner(read).Choose({1, 0, 100, 512, 0, {}, {}}).why.empty());
  }
}

TEST(Calibrate, EndsWhenToldTo) {
  const CpuModelForTests model(LongSpec());
  const auto stop = [](int done, int) {
    if (done == 3) throw Fail(ErrorKind::kCancelled, "enough");
  };
  EXPECT_THROW(Calibrate(DevicesOf(model, 2), model.spec(), {stop}), Error);
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
  EXPECT_GT(result.context, 0);
  const OverlapOptions too_long{.prompt = 4000};
  EXPECT_THROW(MeasureOverlap(engine, too_long, [] {}), Error);
}

}  // namespace
}  // namespace pd::test
