#include "base/error.h"

#include <gtest/gtest.h>

namespace pd {
namespace {

TEST(OneLine, KeepsTextAndReplacesTheRest) {
  EXPECT_EQ(OneLine(""), "");
  EXPECT_EQ(OneLine("a file: \"x\""), "a file: \"x\"");
  EXPECT_EQ(OneLine("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(OneLine("a\nb\tc\x1b[31m\x7f"), "a?b?c?[31m?");
  EXPECT_EQ(OneLine(std::string_view("a\0b", 3)), "a?b");
}

TEST(OneLine, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(OneLine("\x80"), "?");                 // a continuation alone
  EXPECT_EQ(OneLine("\xc3"), "?");                 // cut short
  EXPECT_EQ(OneLine("\xe2\x82"), "??");            // likewise
  EXPECT_EQ(OneLine("\xc0\xaf\xc1\xbf"), "????");  // overlong
  EXPECT_EQ(OneLine("\xe0\x9f\xbf"), "???");       // likewise
  EXPECT_EQ(OneLine("\xf0\x8f\xbf\xbf"), "????");  // likewise
  EXPECT_EQ(OneLine("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(OneLine("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(OneLine("\xf5\xff"), "??");            // no first byte
  EXPECT_EQ(OneLine("\xe2\x82z\xc3\xa9"), "??z\xc3\xa9");
}

TEST(Error, MessageIsOneLine) {
  EXPECT_STREQ(Fail(ErrorKind::kCorruptFile, "{}: bad", "a\nb").what(), "a?b: bad");
}

}  // namespace
}  // namespace pd
