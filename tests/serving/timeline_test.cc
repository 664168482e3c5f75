#include "serving/timeline.h"

#include <gtest/gtest.h>

#include <string>

namespace pd::test {
namespace {

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

size_t Bars(const std::vector<Span>& spans, double end_ms) {
  return Count(TimelineSvg(spans, {"gpu", "ane"}, 0, end_ms), "<title>");
}

// Steps of 1 ms with a moment of bookkeeping after each: 2,000 pixels and more of borders, drawn one by one.
TEST(Timeline, NarrowNeighboursBecomeOneBar) {
  std::vector<Span> spans;
  for (int i = 0; i < 20000; ++i) {
    spans.push_back({0, SpanKind::kStep, RequestId(i), double(i), i + 0.99});
    spans.push_back({0, SpanKind::kOther, 0, i + 0.99, i + 1.0});
  }
  EXPECT_EQ(Bars(spans, 20000), 2u);  // one of each kind
  const std::string svg = TimelineSvg(spans, {"gpu"}, 0, 20000);
  EXPECT_NE(svg.find("20000 x decode step in 19999.99 ms"), std::string::npos);
  EXPECT_GT(svg.find("20000 x decode step"), svg.find("20000 x other")) << "bookkeeping would hide the steps";
  // Close up, every span has its own bar.
  EXPECT_EQ(Count(TimelineSvg(spans, {"gpu"}, 0, 10), "<title>decode step"), 10u);
}

TEST(Timeline, WhatCanBeSeenApartStaysApart) {
  // 1,000 ms in 1,000 pixels.
  EXPECT_EQ(Bars({{0, SpanKind::kPrefill, 1, 0, 100}, {0, SpanKind::kPrefill, 1, 100, 200}}, 1000), 2u);
  EXPECT_EQ(Bars({{0, SpanKind::kStep, 1, 0, 1}, {0, SpanKind::kStep, 1, 1.5, 2.5}}, 1000), 1u);
  EXPECT_EQ(Bars({{0, SpanKind::kStep, 1, 0, 1}, {0, SpanKind::kStep, 1, 2.5, 3.5}}, 1000), 2u);  // a gap
  EXPECT_EQ(Bars({{0, SpanKind::kStep, 1, 0, 1}, {0, SpanKind::kHandoff, 1, 1, 2}}, 1000), 2u);   // kinds
  EXPECT_EQ(Bars({{0, SpanKind::kStep, 1, 0, 1}, {1, SpanKind::kStep, 1, 1, 2}}, 1000), 2u);      // lanes
}

}  // namespace
}  // namespace pd::test
