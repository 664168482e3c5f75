// What the runtime decides without Core ML: the table of failures, placement, engagement, strides.
#include <gtest/gtest.h>

#include "coreml/runtime/engagement.h"
#include "coreml/runtime/failure.h"
#include "coreml/runtime/placement.h"
#include "coreml/runtime/strides.h"

namespace pd {
namespace {

bool Ends(Remedy remedy) { return remedy >= Remedy::kFallBack || remedy == Remedy::kIgnore; }

TEST(Failures, EveryRuleEnds) {
  for (const FailureRule& rule : FailureRules()) {
    EXPECT_TRUE(Ends(rule.remedies[2])) << Name(rule.stage) << " " << Name(rule.code);
    for (int i = 0; i < 2; ++i)  // and does not go on after its end
      if (Ends(rule.remedies[i])) {
        EXPECT_EQ(rule.remedies[i + 1], rule.remedies[i]) << Name(rule.stage);
      }
    int same = 0;
    for (const FailureRule& other : FailureRules())
      same += other.stage == rule.stage && other.code == rule.code;
    EXPECT_EQ(same, 1) << Name(rule.stage) << " " << Name(rule.code);
  }
}

TEST(Failures, TheTableIsTotal) {
  for (int stage = 0; stage <= int(Stage::kPredict); ++stage) {
    EXPECT_EQ(RemedyFor(Stage(stage), Code::kCancelled, 0), Remedy::kCancel);
    for (int code = 1; code < int(Code::kCancelled); ++code)
      for (const int attempt : {2, 3, 100}) EXPECT_TRUE(Ends(RemedyFor(Stage(stage), Code(code), attempt)));
  }
  EXPECT_EQ(RemedyFor(Stage::kCompile, Code::kTimedOut, 0), Remedy::kFallBack);  // what no rule names
  // Only a plan that is missing may be passed over.
  for (const FailureRule& rule : FailureRules())
    if (rule.remedies[2] == Remedy::kIgnore) {
      EXPECT_EQ(rule.stage, Stage::kPlan);
    }
}

PlannedOp Op(const char* type, const char* device, double cost) { return {type, "r", device, cost}; }

TEST(Placement, CountsSharesAndListsTheRest) {
  Placement placement;
  for (int i = 0; i < 18; ++i) placement.Add(Op("ios18.conv", "neural_engine", 0.05));
  placement.Add(Op("ios18.gather", "cpu", 0.04));
  placement.Add(Op("ios18.topk", "gpu", 0.06));
  EXPECT_DOUBLE_EQ(placement.ShareOfOps(), 0.9);
  EXPECT_NEAR(placement.ShareOfCost(), 0.9, 1e-9);
  EXPECT_EQ(placement.elsewhere.size(), 2u);
  EXPECT_EQ(RefusedPlacement(placement, {0.9, 0.85}), std::nullopt);
  const auto refused = RefusedPlacement(placement, {0.95, 0.5});
  ASSERT_TRUE(refused);
  EXPECT_EQ(
      *refused,
      "18 of 20 operations (90 % of the estimated cost) are planned for the Neural Engine; elsewhere: 1 "
      "ios18.topk on gpu, 1 ios18.gather on cpu");
  EXPECT_TRUE(RefusedPlacement(placement, {0.5, 0.95}));
  EXPECT_TRUE(RefusedPlacement({}, {}));
}

TEST(Placement, WithoutCostsOperationsCount) {
  Placement placement;
  for (int i = 0; i < 9; ++i) placement.Add(Op("conv", "neural_engine", 0));
  placement.Add(Op("add", "cpu", 0));
  EXPECT_DOUBLE_EQ(placement.ShareOfCost(), 0.9);
}

TEST(Engagement, IsToldByTheClock) {
  const auto judge = [](std::vector<double> engine, std::vector<double> cpu) {
    return JudgeEngagement(engine, cpu, {}).verdict;
  };
  EXPECT_EQ(judge({10, 11, 9}, {40, 41, 42}), Engagement::Verdict::kEngaged);
  EXPECT_EQ(judge({40, 40, 40}, {40, 41, 42}), Engagement::Verdict::kNotEngaged);
  EXPECT_EQ(judge({90, 90, 90}, {40, 41, 42}), Engagement::Verdict::kNotEngaged);
  EXPECT_EQ(judge({10, 400, 9}, {40, 41, 4}),
            Engagement::Verdict::kEngaged);  // one run of three was disturbed
  EXPECT_EQ(judge({0.4, 0.4, 0.4}, {0.3, 0.3, 0.3}), Engagement::Verdict::kUnknown);
  for (const auto verdict :
       {Engagement::Verdict::kEngaged, Engagement::Verdict::kNotEngaged, Engagement::Verdict::kUnknown})
    EXPECT_EQ(VerdictOf(Name(verdict)), verdict);
  EXPECT_EQ(VerdictOf("perhaps"), std::nullopt);
}

TEST(Strides, AreBelievedOnlyWhereTheyCanBe) {
  const mil::Dims shape = {1, 6, 1, 10};
  const size_t dense = 120, padded = 384;  // bytes: 6 rows of 10 halves, or of 32
  bool distrusted = false;
  const auto usable = [&](std::vector<int64_t> strides, size_t bytes) {
    return UsableStrides(shape, strides, bytes, &distrusted);
  };
  const std::vector<int64_t> row_major = {60, 10, 10, 1};
  EXPECT_EQ(usable(row_major, dense), row_major);
  EXPECT_FALSE(distrusted);
  EXPECT_EQ(usable({192, 32, 32, 1}, padded), (std::vector<int64_t>{192, 32, 32, 1}));
  EXPECT_EQ(usable({192, 32, 32, 1}, padded - 44),
            (std::vector<int64_t>{192, 32, 32, 1}));  // ends with the last value
  EXPECT_EQ(usable({0, 1, 0, 6}, dense),
            (std::vector<int64_t>{0, 1, 0, 6}));  // strides of single elements mean nothing
  EXPECT_FALSE(distrusted);
  for (const std::vector<int64_t>& strides : std::vector<std::vector<int64_t>>{{0, 0, 0, 0},
                                                                               {60, 10, 10, -1},
                                                                               {60, 9, 9, 1},
                                                                               {60, 10, 10, 2},
                                                                               {60, int64_t(1) << 62, 10, 1},
                                                                               {10, 10, 1},
                                                                               {}}) {
    EXPECT_EQ(usable(strides, dense), row_major);
    EXPECT_TRUE(distrusted);
    EXPECT_EQ(usable(strides, padded), std::nullopt) << "the memory may be padded";
  }
  EXPECT_EQ(usable({192, 32, 32, 1}, padded - 46), std::nullopt);
  EXPECT_EQ(usable({60, 10, 10, 1}, dense - 2), std::nullopt);
}

}  // namespace
}  // namespace pd
