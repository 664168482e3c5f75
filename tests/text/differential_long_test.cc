// All of the comparison with Jinja2; template_goldens_test.cc has a sample of it.
#include "tests/text/differential.h"

namespace pd {
namespace {

TEST(TemplateDifferential, Expressions) {
  const DifferentialCounts counts = CompareExpressions(0, 1);
  EXPECT_GE(counts.all(), 3000);
  EXPECT_GE(counts.equal, 2500);
  EXPECT_LE(counts.refused, counts.all() / 20);
}

TEST(TemplateDifferential, PublishedTemplates) {
  const DifferentialCounts counts = ComparePublished(0, 1);
  EXPECT_GE(counts.all(), 90 * 9);
  EXPECT_GE(counts.equal, 700);
  EXPECT_EQ(counts.refused, 0);
}

}  // namespace
}  // namespace pd
