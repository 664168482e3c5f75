#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/golden/smollm2_checks.h"

namespace pd::test {
namespace {

// Takes minutes in double precision: ./dev check runs it.
TEST(SmolLM2Long, TeacherForcedAll) {
  const Json list = ParseJson(ReadTextFile(SmolLM2Data("prompts.json")), "prompts.json");
  std::vector<std::string> names;
  for (const Json& prompt : list["prompts"]) names.push_back(prompt["name"]);
  ASSERT_EQ(names.size(), 12u);
  CheckPrompts(names);
}

}  // namespace
}  // namespace pd::test
