// What chat templates get beside the messages, in `run` and in `batch`, with the real program.
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

// A model whose template writes digits, each of which is one token: 1 for each message, 3 for each letter of
// `name`, 5 without thinking, 7 for each tool, 9 for an empty system message.
class ChatTest : public ::testing::Test {
 protected:
  ChatTest() {
    CopyModel("llama-base", folder_ / "model");
    Json config = ParseJson(ReadTextFile(folder_ / "model/tokenizer_config.json"), "tokenizer_config.json");
    config["chat_template"] =
        "{% for m in messages %}1{% if m.role == 'system' and m.content == '' %}9{% endif %}{% endfor %}"
        "{% for c in name %}3{% endfor %}{% if enable_thinking is defined and not enable_thinking %}5{% "
        "endif %}"
        "{% for t in tools or [] %}7{{ t.function.name }}{% endfor %}";
    folder_.Write("model/tokenizer_config.json", config.dump());
  }

  std::vector<std::string> Command(const char* command, std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {command, "-m", folder_ / "model"});
    return flags;
  }
  // Tokens of the chat that `run` makes.
  int Tokens(std::vector<std::string> flags, const Launch& launch = {}) const {
    flags.insert(flags.end(), {"-p", "x", "-n", "0", "--json", "-q"});
    const Json json = ParseJson(OutputOf(Command("run", flags), launch), "standard output");
    return json["prompt_tokens"];
  }
  std::string Error(int code, const std::vector<std::string>& flags) const {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"-p", "x"});
    return ErrorOf(code, Command("run", all));
  }

  const TempFolder folder_;
};

const std::string kTools =
    R"([{"type": "function", "function": {"name": "22", "parameters": {"type": "object"}}},)"
    R"( {"type": "function", "function": {"name": "4"}}])";

TEST_F(ChatTest, FlagsReachTheTemplate) {
  const int plain = Tokens({});
  EXPECT_EQ(Tokens({"--chat-template-kwargs", R"({"enable_thinking": false})"}), plain + 1);
  EXPECT_EQ(Tokens({"--chat-template-kwargs", R"({"enable_thinking": true, "name": "abc"})"}), plain + 3);
  EXPECT_EQ(Tokens({"--chat-template-kwargs", "{}"}), plain);
  EXPECT_EQ(Tokens({"--tools", folder_.Write("tools.json", "\xEF\xBB\xBF" + kTools + "\r\n")}), plain + 5);
  EXPECT_EQ(Tokens({"--tools", "-"}, {.input = kTools}), plain + 5);
  EXPECT_EQ(Tokens({"--tools", "/dev/stdin"}, {.input = kTools}), plain + 5);
  EXPECT_EQ(Tokens({"--tools", folder_.Write("none.json", "[]")}), plain);
  // A system message that is empty is one; none is none.
  EXPECT_EQ(Tokens({"--system", "Be brief."}), plain + 1);
  EXPECT_EQ(Tokens({"--system", ""}), plain + 2);
  EXPECT_EQ(Tokens({"--system="}), plain + 2);
}

TEST_F(ChatTest, FlagsOfAnotherFormAreRefused) {
  const auto kwargs = [&](const std::string& json) { return Error(2, {"--chat-template-kwargs", json}); };
  EXPECT_EQ(kwargs(""), "--chat-template-kwargs: it is empty: give it a value");
  EXPECT_EQ(kwargs("[1]"),
            "--chat-template-kwargs: it must be a JSON object of names and values, found array");
  EXPECT_EQ(kwargs(R"({"messages": []})"),
            "--chat-template-kwargs: \"messages\" is the chat itself, and no variable to set");
  EXPECT_TRUE(kwargs("{enable_thinking: false}").starts_with("--chat-template-kwargs: parse error at line 1"))
      << kwargs("{enable_thinking: false}");
  EXPECT_TRUE(Contains(kwargs(R"({"a": 1, "a": 2})"), "\"a\""));

  const std::string file = folder_.Write("tools.json", R"({"type": "function"})");
  EXPECT_EQ(Error(2, {"--tools", file}),
            "--tools: " + file + ": tools must be a JSON array of objects, found object");
  folder_.Write("tools.json", R"([{}, "a"])");
  EXPECT_EQ(Error(2, {"--tools", file}), "--tools: " + file + ": tool 2 must be a JSON object, found string");
  folder_.Write("tools.json", "[");
  EXPECT_TRUE(Error(2, {"--tools", file}).starts_with("--tools: " + file + ": parse error"));
  EXPECT_EQ(Error(3, {"--tools", folder_ / "absent"}), (folder_ / "absent").string() + ": no such file");
  EXPECT_EQ(ErrorOf(2, Command("run", {"--tools", "-"}), {.input = "[]"}),
            "--tools: standard input holds the prompts already: name a file");
  for (const std::vector<std::string>& flag :
       {std::vector<std::string>{"--tools", file}, {"--chat-template-kwargs", "{}"}})
    EXPECT_EQ(Error(2, {"--raw", flag[0], flag[1]}),
              flag[0] + ": a plain completion (--raw) has no chat template");
  EXPECT_EQ(Error(2, {"--raw", "--system", ""}),
            "--system: a plain completion (--raw) has no system message");
}

TEST_F(ChatTest, LinesOfABatchMayDiffer) {
  folder_.Write("in.jsonl",
                R"({"prompt": "x"}
{"prompt": "x", "chat_template_kwargs": {"name": "a"}}
{"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "6"}}]}
{"prompt": "x", "chat_template_kwargs": null, "tools": null}
{"prompt": "x", "raw": true}
{"prompt": "x", "raw": true, "tools": []}
{"prompt": "x", "tools": {}}
{"prompt": "x", "chat_template_kwargs": {"messages": 1}}
)");
  const Outcome outcome =
      RunEngine(Command("batch", {folder_ / "in.jsonl", "-o", folder_ / "out.jsonl", "-n", "0", "-q",
                                  "--chat-template-kwargs", R"({"enable_thinking": false, "name": "abc"})",
                                  "--tools", folder_.Write("tools.json", kTools)}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  std::vector<Json> answers;
  const std::string out = ReadTextFile(folder_ / "out.jsonl");
  for (size_t begin = 0; begin < out.size(); begin = out.find('\n', begin) + 1)
    answers.push_back(ParseJson(out.substr(begin, out.find('\n', begin) - begin), "out.jsonl"));
  ASSERT_EQ(answers.size(), 8u);
  const int common = answers[0]["prompt_tokens"];
  EXPECT_EQ(common, Tokens({}) + 1 + 3 + 5);
  EXPECT_EQ(answers[1]["prompt_tokens"], common - 2) << "a variable of its own, and the others";
  EXPECT_EQ(answers[2]["prompt_tokens"], common - 5 + 2) << "tools of its own, and no others";
  EXPECT_EQ(answers[3]["prompt_tokens"], common);
  EXPECT_LT(answers[4]["prompt_tokens"], common);
  const auto message = [&](size_t i) { return answers[i]["error"]["message"].get<std::string>(); };
  EXPECT_TRUE(Contains(message(5), "in.jsonl: line 6: \"tools\" is for chats, and a raw prompt is none"));
  EXPECT_TRUE(Contains(message(6), "line 7: \"tools\": tools must be a JSON array of objects, found object"));
  EXPECT_TRUE(Contains(message(7), "line 8: \"chat_template_kwargs\": \"messages\" is the chat itself"));
}

}  // namespace
}  // namespace pd::test
