#include "device/chunk_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace pd::test {
namespace {

const std::vector<PrefillShape> kShapes = {{128, 0}, {128, 1024}, {512, 0}, {512, 1024}};

// As many units as a function has rows, and `per_call` for each call.
CallCost CostWith(double per_call) {
  return [per_call](const PrefillShape& shape) {
    return per_call + shape.tokens * (shape.history == 0 ? 1.0 : 1.5);
  };
}

std::string Plan(int first, int count, double per_call) {
  std::string text;
  for (const PlannedCall& call : PlanCalls(kShapes, first, count, CostWith(per_call)))
    text += fmt::format("t{}s{}:{}+{} ", call.shape.tokens, call.shape.history, call.first, call.count);
  return text;
}

TEST(PlanCalls, TakesTheCheapestFunctions) {
  EXPECT_EQ(Plan(0, 100, 1), "t128s0:0+100 ");
  EXPECT_EQ(Plan(0, 512, 1), "t512s0:0+512 ");
  EXPECT_EQ(Plan(0, 200, 1), "t128s0:0+128 t128s1024:128+72 ");
  EXPECT_EQ(Plan(0, 200, 1000), "t512s0:0+200 ");  // where a call costs more than rows
  EXPECT_EQ(Plan(700, 100, 1), "t128s1024:700+100 ");
}

TEST(PlanCalls, ReachesAsFarAsHistoryDoes) {
  EXPECT_EQ(Reach(kShapes, 0), 1024 + 512);
  EXPECT_EQ(Reach(kShapes, 1024), 1024 + 512);
  EXPECT_EQ(Reach(kShapes, 1025), 1025);
  int end = 0;
  for (const PlannedCall& call : PlanCalls(kShapes, 0, 1536, CostWith(1))) {
    EXPECT_EQ(call.first, end);
    EXPECT_LE(call.first, call.shape.history);
    EXPECT_LE(call.count, call.shape.tokens);
    end += call.count;
  }
  EXPECT_EQ(end, 1536);
  EXPECT_THROW(PlanCalls(kShapes, 0, 1537, CostWith(1)), Error);
  EXPECT_THROW(PlanCalls(kShapes, 1025, 1, CostWith(1)), Error);
}

}  // namespace
}  // namespace pd::test
