#include "planning/simulator.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "planning/profile.h"
#include "planning/shapes.h"
#include "tests/expect_error.h"

namespace pd::test {
namespace {

// A chunk takes 1 ms per token and a step 10 ms, on every device.
MachineCosts Plain() {
  MachineCosts costs;
  costs.machine = "plain", costs.model = "none";
  costs.direct = {.device = "gpu", .chunk = {{0, 0}, {100, 100}}, .lane = 0, .watts = 5};
  costs.units = {{.device = "ane", .chunk = {{0, 0}, {100, 100}}, .watts = 2}};
  costs.decode = {"gpu", {{1, 10}, {2, 10}}, 0, 10};
  return costs;
}

const PrefillChoice kGpu{std::nullopt, 100, {}}, kAne{0, 100, {}};

Simulation RunOn(const PrefillChoice& choice, const std::vector<TraceRequest>& trace) {
  SimulationOptions options;
  options.fixed = [choice](size_t) { return choice; };
  return Simulate(Plain(), trace, options);
}

TEST(Simulator, TakesTheTimesOfTheCosts) {
  const Simulation alone = RunOn(kAne, {{0, 201, 5}});
  EXPECT_NEAR(alone.requests[0].first_token_ms, 210, 0.2);
  EXPECT_NEAR(alone.requests[0].end_ms, 250, 0.3);
  ASSERT_EQ(alone.gaps_ms.size(), 4u);
  for (double gap : alone.gaps_ms) EXPECT_NEAR(gap, 10, 0.1);
  ASSERT_TRUE(alone.joules);
  EXPECT_NEAR(*alone.joules, 0.2 * 2 + 0.05 * 10, 0.01);
}

TEST(Simulator, TwoLanesKeepTextsGoing) {
  const std::vector<TraceRequest> trace = {{0, 1, 100}, {100, 1001, 1}};
  const Simulation one = RunOn(kGpu, trace), two = RunOn(kAne, trace);
  // One lane: a step, then a chunk of 100 ms, ten times. Two: the text goes on undisturbed.
  EXPECT_NEAR(one.gaps_ms.back(), 110, 1);
  EXPECT_NEAR(two.gaps_ms.back(), 10, 1);
  EXPECT_NEAR(one.requests[0].end_ms - two.requests[0].end_ms, 1000, 20);
  EXPECT_EQ(two.requests[1].device, "ane");
  EXPECT_FALSE(two.requests[1].direct);
  EXPECT_EQ(one.requests[1].device, "gpu");
  EXPECT_TRUE(one.requests[1].direct);
  EXPECT_EQ(two.lanes, (std::vector<std::string>{"gpu", "ane"}));
}

TEST(Simulator, PlannerBeatsOneLaneOnABusyMachine) {
  std::vector<TraceRequest> trace;
  for (int i = 0; i < 30; ++i) trace.push_back({i * 300.0, 200 + i * 37 % 900, 60});
  const MachineCosts costs = CostsOf(FindChip("M3"), KnownShape("qwen3-0.6b"), "qwen3-0.6b", 4.5);
  const Simulation planned = Simulate(costs, trace, {});
  SimulationOptions one;
  one.fixed = [](size_t) { return PrefillChoice{std::nullopt, 512, {}}; };
  const Simulation single = Simulate(costs, trace, one);
  EXPECT_LT(Percentile(planned.gaps_ms, 99), Percentile(single.gaps_ms, 99));
  double planned_first = 0, single_first = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    planned_first += planned.requests[i].first_token_ms;
    single_first += single.requests[i].first_token_ms;
  }
  EXPECT_LT(planned_first, single_first);
  EXPECT_FALSE(planned.joules) << "no watts are known of this chip";
}

TEST(Simulator, DrawsItsLanes) {
  const Simulation simulation = RunOn(kAne, {{0, 201, 5}});
  const std::string svg = TimelineSvg(simulation.spans, simulation.lanes, 0, simulation.total_ms);
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("prefill chunk"), std::string::npos);
  EXPECT_NE(svg.find(">ane<"), std::string::npos);
}

TEST(Trace, IsReadStrictly) {
  const auto trace = ReadTrace(
      "{\"at_ms\": 0, \"prompt\": 5, \"output\": 2}\n\n{\"at_ms\": 1.5, \"prompt\": 1, \"output\": 1}", "t");
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[1].at_ms, 1.5);
  for (const char* bad :
       {"", "x", "{\"at_ms\": 0, \"prompt\": 5}", "{\"at_ms\": -1, \"prompt\": 5, \"output\": 2}",
        "{\"at_ms\": 0, \"prompt\": 0, \"output\": 2}",
        "{\"at_ms\": 0, \"prompt\": 5, \"output\": 2, \"model\": 1}"})
    ExpectError(ErrorKind::kBadRequest, {"t"}, [&] { ReadTrace(bad, "t"); });
}

bool ThrowsOn(const Json& json) {
  try {
    ReadMachineCosts(json, "file");
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST(CostModel, SurvivesItsFile) {
  const MachineCosts costs = CostsOf(FindChip("M4 Max"), KnownShape("qwen3-0.6b"), "qwen3-0.6b", 4.5);
  const Json json = ToJson(costs);
  EXPECT_EQ(ToJson(ReadMachineCosts(ParseJson(json.dump(), "file"), "file")), json);
  for (const auto& [key, value] : json.items()) {
    Json bad = json;
    bad[key] = "?";
    const bool any_text = key == "machine" || key == "model";
    EXPECT_EQ(ThrowsOn(bad), !any_text) << key;
    bad.erase(key);
    EXPECT_TRUE(ThrowsOn(bad)) << key;
  }
}

TEST(CostModel, HistoryMultiplies) {
  PrefillCost cost;
  cost.chunk = {{1, 10}, {100, 100}};
  EXPECT_EQ(cost.ChunkMs(5000, 100), 100);
  cost.later = {{1000, {{1, 2}, {100, 3}}}, {2000, {{1, 2}, {100, 4}}}};
  EXPECT_EQ(cost.ChunkMs(0, 100), 100);
  EXPECT_EQ(cost.ChunkMs(500, 100), 200);  // halfway from 1 to 3
  EXPECT_EQ(cost.ChunkMs(1000, 1), 20);
  EXPECT_EQ(cost.ChunkMs(1500, 100), 350);
  EXPECT_EQ(cost.ChunkMs(3000, 100), 500);        // extrapolated
  EXPECT_EQ(cost.ChunkMs(2000, 199), 190 * 4.0);  // longer chunks use the last ratio
  EXPECT_EQ(cost.PromptMs(0, 150, 100), 100 + cost.ChunkMs(100, 50));
}

// A device of fixed shapes takes as long as the calls it makes.
TEST(CostModel, CallsAddUp) {
  PrefillCost cost;
  cost.device = "ane";
  cost.calls = {{{128, 0}, 10}, {{512, 0}, 30}, {{512, 1024}, 50}};
  EXPECT_EQ(cost.ChunkMs(0, 1), 10);
  EXPECT_EQ(cost.ChunkMs(0, 128), 10);
  EXPECT_EQ(cost.ChunkMs(0, 129), 30);
  EXPECT_EQ(cost.ChunkMs(1, 16), 50);
  EXPECT_EQ(cost.PromptMs(0, 600, 512), 30 + 50);
  EXPECT_EQ(cost.ChunkMs(1000, 600), 50 + 50 + 50 * 64 / 512.0);  // 64 tokens that another device computes
  EXPECT_EQ(cost.FirstChunks(), (Curve{{128, 10}, {512, 30}}));

  MachineCosts costs = CostsOf(FindChip("M4 Max"), KnownShape("qwen3-0.6b"), "qwen3-0.6b", 4.5);
  costs.units = {cost};
  const Json json = ToJson(costs);
  EXPECT_EQ(ToJson(ReadMachineCosts(ParseJson(json.dump(), "file"), "file")), json);
  for (const char* calls : {"[]", "3", "[[128, 0]]", "[[0, 0, 1]]", "[[128, -1, 1]]", "[[128, 0, -1]]"}) {
    Json bad = json;
    bad["prefill"][0]["calls"] = ParseJson(calls, "test");
    EXPECT_TRUE(ThrowsOn(bad)) << calls;
  }
}

TEST(CostModel, CurvesAreLinearBetweenPoints) {
  const Curve curve = {{10, 5}, {20, 7}, {40, 17}};
  EXPECT_EQ(At(curve, 1), 5);
  EXPECT_EQ(At(curve, 10), 5);
  EXPECT_EQ(At(curve, 15), 6);
  EXPECT_EQ(At(curve, 20), 7);
  EXPECT_EQ(At(curve, 30), 12);
  EXPECT_EQ(At(curve, 80), 37);
  EXPECT_EQ(At({{10, 5}}, 20), 10);
}

}  // namespace
}  // namespace pd::test
