#include "cli/raw_json.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace pd::cli {
namespace {

TEST(FindRawValue, GivesTheTextAsItIsWritten) {
  const auto id = [](std::string_view object) { return FindRawValue(object, "id").value_or("none"); };
  EXPECT_EQ(id(R"({"id": 1})"), "1");
  EXPECT_EQ(id(R"({"id":1e999})"), "1e999");
  EXPECT_EQ(id(R"( { "a" : [1, {"id": 2}, "id"] , "id" : -0.10 , "b": 3})"), "-0.10");
  EXPECT_EQ(id(R"({"a":"}{\"id\": 5, \\","id":"x\u0041 \"]"})"), R"("x\u0041 \"]")");
  EXPECT_EQ(id(R"({"id": { "a" : [1,"]"] }, "b": 1})"), R"({ "a" : [1,"]"] })");
  EXPECT_EQ(id(R"({"\u0069d": [ ]})"), "[ ]");
  EXPECT_EQ(id(R"({"id": null})"), "null");
  EXPECT_EQ(id(R"({"a": {"id": 1}})"), "none");
  EXPECT_EQ(id(R"({})"), "none");
  // No JSON: anything but a crash.
  for (const char* text : {"", "{", "[]", "{\"", "{\"id", "{\"id\"", "{\"id\":", "{\"id\":\"", "{\"id\":\"\\",
                           "{\"id\":[", "{\"a\":1", "{\"a\":1,", "{\"id\":}}}", "{\"\\q\":1,\"id\":2"})
    id(text);
}

TEST(WithoutNumbers, KeepsWhetherItIsJson) {
  EXPECT_EQ(WithoutNumbers("18446744073709551616"), "0                   ");
  EXPECT_EQ(WithoutNumbers("-1.5e+400"), "0        ");
  EXPECT_EQ(WithoutNumbers(R"({"a1": [10,-2, "3\"4", true]})"), R"({"a1": [0 ,0 , "3\"4", true]})");
  for (const char* no_number : {"01", "1.", ".5", "+1", "1e", "--1", "-", "1-1", "1.5.5", "1 2", "1e5true"})
    EXPECT_FALSE(Json::accept(WithoutNumbers(no_number))) << no_number;
}

}  // namespace
}  // namespace pd::cli
