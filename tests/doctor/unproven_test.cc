// The list that people read and the list that `doctor --bundle` answers are one.
#include <gtest/gtest.h>

#include <sstream>

#include "base/files.h"
#include "doctor/unproven.h"

namespace pd {
namespace {

TEST(Claims, AreThoseOfUnprovenMd) {
  std::istringstream text(ReadTextFile("docs/unproven.md"));
  std::string line;
  size_t i = 0;
  while (std::getline(text, line)) {
    int number = 0;
    if (std::sscanf(line.c_str(), "| %d |", &number) != 1) continue;
    ASSERT_LT(i, Claims().size()) << line;
    const Claim& claim = Claims()[i++];
    EXPECT_EQ(claim.number, number);
    EXPECT_NE(line.find("`" + std::string(claim.name) + "`"), std::string::npos) << line;
    // What this program settles is settled by its command; the others name theirs.
    EXPECT_EQ(line.find("doctor --bundle") != std::string::npos, claim.command.empty()) << line;
  }
  EXPECT_EQ(i, Claims().size());
}

}  // namespace
}  // namespace pd
