#include "cli/options.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/units.h"

namespace pd::cli {
namespace {

template <class F>
std::string MessageOf(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadRequest);
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(ParseInteger, TakesWholeNumbersOnly) {
  EXPECT_EQ(ParseInteger("-n", "0", 0, 10), 0);
  EXPECT_EQ(ParseInteger("-n", "010", 0, 10), 10);  // decimal, not octal
  EXPECT_EQ(ParseInteger("-n", "-3", -5, 10), -3);
  EXPECT_EQ(ParseInteger("-n", "9223372036854775807", 0, INT64_MAX), INT64_MAX);
  for (const char* text :
       {"", " 1", "1 ", "1.0", "1e1", "0x1", "+1", "eleven", "-1", "11", "99999999999999999999"})
    EXPECT_EQ(MessageOf([&] { ParseInteger("-n", text, 0, 10); }),
              fmt::format("-n: '{}' is not a whole number from 0 to 10", text));
  EXPECT_EQ(MessageOf([] { ParseInteger("-n", "0", 1, INT32_MAX); }),
            "-n: '0' is not a whole number from 1 to 2147483647");
}

TEST(ParseNumber, TakesDecimalNumbersOnly) {
  EXPECT_EQ(ParseNumber("--x", "0.5", {0, 1}), 0.5f);
  EXPECT_EQ(ParseNumber("--x", "1e-3", {0, 1}), 1e-3f);
  EXPECT_EQ(ParseNumber("--x", ".5", {0, 1}), 0.5f);
  EXPECT_EQ(ParseNumber("--x", "-0", {0, 1}), 0);
  for (const char* text :
       {"", "nan", "inf", "0x1", " 1", "1 ", "1,5", "0.5.5", "e", "-", "1.1", "-0.1", "1e999"})
    EXPECT_EQ(MessageOf([&] { ParseNumber("--x", text, {0, 1}); }),
              fmt::format("--x: '{}' is not a number from 0 to 1", text));
  EXPECT_EQ(ParseNumber("--x", "1", {0, 1, true}), 1);
  EXPECT_EQ(MessageOf([] { ParseNumber("--x", "0", {0, 1, true}); }),
            "--x: '0' is not a number above 0 and at most 1");
}

TEST(ParseBias, TakesTokenAndValue) {
  EXPECT_EQ(ParseBias("--b", "17:-2.5"), (std::pair<TokenId, float>{17, -2.5f}));
  for (const char* text : {"17", "17:", ":1", "a:1", "-1:1", "1:x", "1:2:3", "1:1e7"})
    EXPECT_EQ(MessageOf([&] { ParseBias("--b", text); }).substr(0, 4), "--b:") << text;
}

TEST(ParseIds, TakesCommasSpacesAndLines) {
  EXPECT_EQ(ParseIds("-i", " 1,2, 3\n4\r\n\t5,"), (std::vector<TokenId>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(ParseIds("-i", " \n").empty());
  for (const char* text : {"1;2", "1 -2", "1.5", "x", "2147483648"}) MessageOf([&] { ParseIds("-i", text); });
}

TEST(Units, AreReadable) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Grouped(-123), "-123");
  EXPECT_EQ(Grouped(-1234), "-1,234");
  EXPECT_EQ(WithUnit(0, "B"), "0 B");
  EXPECT_EQ(WithUnit(999, "B"), "999 B");
  EXPECT_EQ(WithUnit(1000, "B"), "1.00 kB");
  EXPECT_EQ(WithUnit(23040, "B"), "23.0 kB");
  EXPECT_EQ(WithUnit(134.5e6, ""), "134 M");
  EXPECT_EQ(WithUnit(999.7e6, "B"), "1.00 GB");
}

}  // namespace
}  // namespace pd::cli
