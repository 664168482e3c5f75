#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace pd {
namespace {

template <class F>
std::string MessageOf(F f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(ParseJson, NamesPlaceOfMistakes) {
  const auto message = [](const char* text) {
    return MessageOf([&] { ParseJson(text, "f.json"); }, ErrorKind::kCorruptFile);
  };
  EXPECT_NE(message("{\n  \"a\": ,}").find("f.json: parse error at line 2"), std::string::npos);
  EXPECT_NE(message("{\"a\": 1, \"a\": 2}").find("\"a\" appears twice"), std::string::npos);
  EXPECT_NE(message("").find("f.json"), std::string::npos);
  EXPECT_NE(message(std::string(10000, '[').c_str()).find("deeper than 64"), std::string::npos);
  EXPECT_EQ(ParseJson("{\"a\": {\"b\": 1}, \"c\": {\"b\": 2}}", "f.json")["c"]["b"], 2);
}

TEST(ParseSortedJson, SortsAndIsAsStrict) {
  const SortedJson json = ParseSortedJson(R"({"b": 1, "a": [true]})", "f.json");
  EXPECT_EQ(json.begin().key(), "a");
  EXPECT_EQ(json["b"], 1);
  MessageOf([] { ParseSortedJson("{\"a\": 1, \"a\": 2}", "f.json"); }, ErrorKind::kCorruptFile);
  MessageOf([] { ParseSortedJson(std::string(10000, '['), "f.json"); }, ErrorKind::kCorruptFile);
  MessageOf([] { ParseSortedJson("{\"a\"", "f.json"); }, ErrorKind::kCorruptFile);
}

TEST(ParseJson, ANulByteIsNoEndOfText) {
  for (const std::string& text :
       {std::string("{}\0", 3), std::string("{}\0{", 4), std::string("[\"\0\"]", 5)})
    EXPECT_NE(MessageOf([&] { ParseJson(text, "f.json"); }, ErrorKind::kCorruptFile).find("NUL byte"),
              std::string::npos);
}

TEST(ParsePythonJson, ReadsWhatPythonReads) {
  const Json json = ParsePythonJson(
      R"({"a": 1, "nan": NaN, "big": [Infinity, -Infinity, 1e999, -1E+400], "s": "NaN, \"Infinity\"", "a": 2})",
      "f.json");
  EXPECT_EQ(json["a"], 2);
  EXPECT_EQ(json["nan"], "NaN");
  EXPECT_EQ(json["big"], (Json{"Infinity", "-Infinity", "1e999", "-1E+400"}));
  EXPECT_EQ(json["s"], "NaN, \"Infinity\"");
  JsonReader reader(json, "f.json");
  EXPECT_NE(MessageOf([&] { reader.Number("nan"); }, ErrorKind::kCorruptFile).find("NaN"), std::string::npos);
  EXPECT_EQ(ParseSortedPythonJson("[1e-999, 12, -0.5e3, true, null]", "f.json")[2], -500);
  for (const char* bad : {"nan", "[Nan]", "inf", "+1", "[1e]", "\"open", "\"\\", ""})
    MessageOf([&] { ParsePythonJson(bad, "f.json"); }, ErrorKind::kCorruptFile);
}

TEST(JsonReader, ANullKeyThatNobodyReadIsAbsent) {
  const Json json = ParseJson(R"({"nothing": null})", "f.json");
  JsonReader(json, "f.json").Done();
}

TEST(JsonReader, TellsNullFromAbsent) {
  const Json json = ParseJson(R"({"nothing": null, "n": 3})", "f.json");
  const JsonReader reader(json, "f.json");
  EXPECT_TRUE(reader.Names("nothing") && reader.Names("n"));
  EXPECT_FALSE(reader.Names("absent") || reader.Has("nothing"));
}

TEST(JsonReader, ReadsTypedAndRefusesTheRest) {
  const Json json = ParseJson(
      R"({"n": 3, "x": 0.5, "s": "t", "flag": true, "nothing": null, "huge": 18446744073709551615})",
      "f.json");
  JsonReader reader(json, "f.json");
  EXPECT_EQ(reader.Int("n"), 3);
  EXPECT_EQ(reader.Number("n"), 3.0);
  EXPECT_EQ(reader.Number("x"), 0.5);
  EXPECT_EQ(reader.String("s"), "t");
  EXPECT_TRUE(reader.Bool("flag"));
  EXPECT_EQ(reader.IntOr("nothing", 7), 7);
  EXPECT_EQ(reader.IntOr("absent", 8), 8);
  for (const char* key : {"x", "s", "huge", "absent", "nothing"})
    EXPECT_NE(MessageOf([&] { reader.Int(key); }, ErrorKind::kCorruptFile).find(key), std::string::npos);
  MessageOf([&] { reader.Int("n", 4); }, ErrorKind::kCorruptFile);
  MessageOf([&] { JsonReader(json["n"], "f.json: n"); }, ErrorKind::kCorruptFile);
  reader.Done();  // all were read
}

TEST(JsonReader, ReportsKeysNobodyRead) {
  const Json json = ParseJson(R"({"a": 1, "mystery_scale": 2, "c": 3})", "f.json");
  JsonReader reader(json, "f.json");
  reader.Ignore({"c", "not there"});
  reader.Int("a");
  EXPECT_NE(MessageOf([&] { reader.Done(); }, ErrorKind::kUnsupported).find("mystery_scale"),
            std::string::npos);
  reader.Expect("mystery_scale", 2);
  reader.Done();
  MessageOf([&] { reader.Expect("mystery_scale", 1); }, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace pd
