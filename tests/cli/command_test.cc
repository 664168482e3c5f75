// Values of flags arrive as they were typed.
#include "cli/command.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"

namespace pd::cli {
namespace {

struct Parsed {
  std::string text, any = "untouched", argument;
  std::vector<std::string> repeated, each, list;
  bool on = false;
  int number = 0;
};

// `pd-engine go WORDS`
Parsed Parse(std::vector<std::string> words) {
  words.insert(words.begin(), {"pd-engine", "go"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Parsed parsed;
  ParseCommandLine(int(argv.size()), argv.data(), "", "", [&](const Command& program) {
    const Command go = program.Add("go", "");
    go.Text("-t,--text", parsed.text, "");
    go.AnyText("-a,--any", parsed.any, "");
    go.Text("input", parsed.argument, "");
    go.Repeated("--stop", parsed.repeated, "");
    go.ParsedEach("--each", [&](const std::string& text) { parsed.each.push_back(text); }, "");
    go.List("--list", parsed.list, "");
    go.Switch("-s,--switch", parsed.on, "");
    go.Integer("-n", parsed.number, {0, 9}, "");
    go.Runs([] { return 0; });
  });
  return parsed;
}

const std::vector<std::string> kHard = {
    "[answer]", "[no,5]", "[/INST]", "[END]", "[]",       "[",          "]",       "{}",          "{a}",
    "a,b",      ",",      "a=b",     "=",     "--text",   "--text=x",   "--text=", "-t",          "-s",
    "-",        "--",     "-1",      "\"q\"", "'q'",      "\"",         "\\n",     " ",           "two words",
    "\n",       "go",     "%%",      "#",     "@file",    "/windows",   "++",      "<|im_end|>",  "\xC3\xA9",
    "[[a]]",    "\t",     "$HOME",   "`x`",   "--switch", "--nonsense", "-x",      "[\"a\",'b']", "true"};

TEST(Values, AreBytesAsTyped) {
  for (const std::string& value : kHard) {
    SCOPED_TRACE(value);
    for (const char* flag : {"-t", "--text"}) EXPECT_EQ(Parse({flag, value}).text, value);
    for (const char* flag : {"-a", "--any"}) EXPECT_EQ(Parse({flag, value}).any, value);
    EXPECT_EQ(Parse({"--text=" + value}).text, value);
    EXPECT_EQ(Parse({"--stop", value, "--stop=" + value, "--stop", "x"}).repeated,
              (std::vector<std::string>{value, value, "x"}));
    EXPECT_EQ(Parse({"--each", value, "--each", value}).each, (std::vector<std::string>{value, value}));
    // What follows is read as it would be behind any value.
    const Parsed more = Parse({"--stop", value, "-s", "-n", "5", "input"});
    EXPECT_TRUE(more.on);
    EXPECT_EQ(more.number, 5);
    EXPECT_EQ(more.argument, "input");
  }
  EXPECT_EQ(Parse({"--", "-t"}).argument, "-t");
  EXPECT_EQ(Parse({"-"}).argument, "-");
  EXPECT_EQ(Parse({"-ttight"}).text, "tight");
  EXPECT_EQ(Parse({"-st", "--stop="}).text, "--stop=");
}

TEST(Values, MayBeEmptyWhereThatMeansSomething) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--any", "", "-s"}, {"--any=", "-s"}, {"-s", "--any="}, {"-a", "", "-s"}}) {
    const Parsed parsed = Parse(words);
    EXPECT_EQ(parsed.any, "");
    EXPECT_TRUE(parsed.on);
  }
  EXPECT_EQ(Parse({"--stop=", "--stop", ""}).repeated, (std::vector<std::string>{"", ""}));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--text", ""}, {"--text="}, {"-t", ""}, {"--text=", "-s"}})
    test::ExpectError(ErrorKind::kBadRequest, {"--text: it is empty: give it a value"},
                      [&] { Parse(words); });
  test::ExpectError(ErrorKind::kBadRequest, {"input: it is empty"}, [&] { Parse({""}); });
  test::ExpectError(ErrorKind::kBadRequest, {"--list: '' has an empty name"}, [&] { Parse({"--list="}); });
}

TEST(Values, OfListsArePartedByCommas) {
  EXPECT_EQ(Parse({"--list", "a,[b],c", "--list", "d"}).list,
            (std::vector<std::string>{"a", "[b]", "c", "d"}));
  test::ExpectError(ErrorKind::kBadRequest, {"--list: 'a,,b' has an empty name"},
                    [&] { Parse({"--list", "a,,b"}); });
}

TEST(Values, AreOneEach) {
  test::ExpectError(ErrorKind::kBadRequest, {"stray"}, [&] { Parse({"--stop", "a", "input", "stray"}); });
  EXPECT_EQ(Parse({"--stop", "a", "input"}).argument, "input") << "a stop takes one word";
  test::ExpectError(ErrorKind::kBadRequest, {"--text"}, [&] { Parse({"--text", "a", "--text", "b"}); });
  test::ExpectError(ErrorKind::kBadRequest, {"--text"}, [&] { Parse({"--text"}); });
}

}  // namespace
}  // namespace pd::cli
