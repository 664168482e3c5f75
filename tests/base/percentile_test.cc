#include "base/percentile.h"

#include <gtest/gtest.h>

namespace pd::test {
namespace {

TEST(Percentile, IsLinearBetweenNeighbours) {
  const std::vector<double> values = {1, 2, 4, 8, 16};
  EXPECT_EQ(Percentile(values, 0), 1);
  EXPECT_EQ(Percentile(values, 50), 4);
  EXPECT_EQ(Percentile(values, 75), 8);
  EXPECT_DOUBLE_EQ(Percentile(values, 95), 8 + 0.8 * 8);
  EXPECT_EQ(Percentile(values, 100), 16);
  EXPECT_EQ(Percentile(std::vector<double>{3}, 99), 3);
  EXPECT_EQ(Percentile({}, 50), 0);
}

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 2}), 3.5);
  EXPECT_EQ(Median({2, 1}), 1.5);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({}), 0);
}

}  // namespace
}  // namespace pd::test
