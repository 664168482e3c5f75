// `batch` with the real program.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class BatchTest : public ::testing::Test {
 protected:
  // 40 prompts of different lengths, with options of their own.
  std::string Questions(int count = 40) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      Json line = {{"id", i}, {"max_tokens", 5 + i % 7}};
      const std::string words(size_t(1 + i * 5 % 90), char('a' + i % 26));
      if (i % 3 == 0) line["messages"] = Json::array({{{"role", "user"}, {"content", words}}});
      if (i % 3 == 1) line["prompt"] = words;
      if (i % 3 == 2) line["prompt"] = words, line["raw"] = true;
      if (i % 5 == 4) line["temperature"] = 0.9, line["seed"] = i;
      text += line.dump() + "\n";
    }
    return folder_.Write("in.jsonl", text);
  }

  Outcome Batch(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {"batch", "-m", kTiny, folder_ / "in.jsonl"});
    return RunEngine(flags);
  }
  std::vector<Json> Answers(const std::string& name) const {
    std::vector<Json> answers;
    for (const std::string& line : LinesOf(folder_ / name)) answers.push_back(ParseJson(line, name));
    return answers;
  }
  static std::vector<std::string> Texts(const std::vector<Json>& answers) {
    std::vector<std::string> texts;
    for (const Json& answer : answers)
      texts.push_back(answer["id"].dump() + ": " + answer["text"].get<std::string>() +
                      answer["finish_reason"].get<std::string>());
    return texts;
  }

  const TempFolder folder_;
};

TEST_F(BatchTest, AnswersEveryLineInOrder) {
  Questions();
  const Outcome outcome = Batch({"-o", folder_ / "out.jsonl"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto answers = Answers("out.jsonl");
  ASSERT_EQ(answers.size(), 40u);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]["line"], i + 1);
    EXPECT_EQ(answers[i]["id"], i);
    EXPECT_LE(answers[i]["tokens"], 5 + i % 7);
    EXPECT_EQ(answers[i]["stats"]["decode"]["tokens"], answers[i]["tokens"]);
    const int computed = answers[i]["stats"]["prefill"]["tokens"],
              cached = answers[i]["stats"]["prefill"]["cached_tokens"];
    EXPECT_EQ(computed + cached + 1, answers[i]["prompt_tokens"]);
    EXPECT_EQ(answers[i]["seed"].is_null(), i % 5 != 4);
  }
  // One at a time, on one lane or two, with and without a cache: the same texts.
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--parallel", "1"},
                                                {"--parallel", "7", "--prefix-cache-mb", "0"},
                                                {"--prefill-chunk", "3"}}) {
    auto all = flags;
    all.insert(all.end(), {"-q", "-o", folder_ / ("out" + flags.back() + flags[1])});
    const Outcome other = Batch(all);
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_EQ(other.err, "");
    EXPECT_EQ(Texts(Answers("out" + flags.back() + flags[1])), Texts(answers));
  }
}

TEST_F(BatchTest, ContinuesAfterItWasKilled) {
  Questions();
  ASSERT_EQ(Batch({"-o", folder_ / "whole.jsonl"}).code, 0);
  const auto whole = Texts(Answers("whole.jsonl"));
  const auto lines = LinesOf(folder_ / "whole.jsonl");
  // Cut anywhere: after a line, in one, before the first, after the last.
  for (const double share : {0.0, 0.013, 0.3, 0.5, 0.77, 0.999, 1.0}) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    folder_.Write("cut.jsonl", text.substr(0, size_t(share * double(text.size()))));
    const size_t kept = size_t(std::ranges::count(ReadTextFile(folder_ / "cut.jsonl"), '\n'));
    const Outcome outcome = Batch({"-o", folder_ / "cut.jsonl"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("40 lines answered, " + std::to_string(kept) + " of them before"),
              std::string::npos)
        << outcome.err;
    EXPECT_EQ(Texts(Answers("cut.jsonl")), whole);
    const auto now = LinesOf(folder_ / "cut.jsonl");
    for (size_t i = 0; i < kept; ++i) EXPECT_EQ(now[i], lines[i]) << "answered anew";
  }
}

TEST_F(BatchTest, RefusesAnOutputThatAnswersSomethingElse) {
  Questions();
  ASSERT_EQ(Batch({"-o", folder_ / "out.jsonl"}).code, 0);
  const std::string answers = ReadTextFile(folder_ / "out.jsonl");
  folder_.Write("in.jsonl", "{\"prompt\": \"another\"}\n");
  const Outcome outcome = Batch({"-o", folder_ / "out.jsonl"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("line 1 does not answer line 1 of the input"), std::string::npos) << outcome.err;
  EXPECT_EQ(ReadTextFile(folder_ / "out.jsonl"), answers);
}

// Whatever is no answer of ours: refused before the model is looked at, and untouched.
TEST_F(BatchTest, RefusesWhatIsNotItsOwn) {
  Questions(3);
  const std::string binary("\0\1\2\n\xff", 5);
  for (const std::string& theirs : {std::string("a letter without its end"), std::string("a line\n"), binary,
                                    std::string("{\"line\":1,\"inp"),
                                    std::string("{\"line\":1,\"input\":\"0123456789abcdef\",\"x\":1}\n"),
                                    std::string("\n"), std::string(100'000, 'x')}) {
    folder_.Write("theirs", theirs);
    const std::string error =
        ErrorOf(2, {"batch", "-m", "no/such/model", folder_ / "in.jsonl", "-o", folder_ / "theirs"});
    EXPECT_TRUE(Contains(error, "theirs: line 1 ")) << error;
    EXPECT_TRUE(Contains(error, "it stays as it is")) << error;
    EXPECT_EQ(ReadTextFile(folder_ / "theirs"), theirs);
  }
  const std::string input = ReadTextFile(folder_ / "in.jsonl");
  EXPECT_TRUE(Contains(Batch({"-o", folder_ / "in.jsonl"}).err, "the same file as the input"));
  EXPECT_EQ(ReadTextFile(folder_ / "in.jsonl"), input);
  folder_.Write("empty", "");
  EXPECT_EQ(Batch({"-o", folder_ / "empty"}).code, 0);
  EXPECT_EQ(Answers("empty").size(), 3u);
  EXPECT_EQ(ErrorOf(3, {"batch", "-m", "no/such/model", folder_ / "in.jsonl", "-o", folder_ / "new"}).empty(),
            false);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  // Notes behind answers of ours.
  const std::string noted = ReadTextFile(folder_ / "empty") + "my notes";
  folder_.Write("noted", noted);
  EXPECT_TRUE(Contains(Batch({"-o", folder_ / "noted"}).err, "line 4 is no answer to line 4"));
  EXPECT_EQ(ReadTextFile(folder_ / "noted"), noted);
}

TEST_F(BatchTest, ContinuesUnderTheSameSettingsOnly) {
  Questions(6);
  ASSERT_EQ(Batch({"-o", folder_ / "out.jsonl", "--stop", "<end>"}).code, 0);
  const auto lines = LinesOf(folder_ / "out.jsonl");
  const std::string half = lines[0] + "\n" + lines[1] + "\n" + lines[2].substr(0, 60);
  for (const std::string& text : {half, ReadTextFile(folder_ / "out.jsonl")}) {  // a whole one, too
    for (const auto& [flag, value, said] :
         std::vector<std::array<std::string, 3>>{{"-n", "3", "max_tokens was 256, now 3"},
                                                 {"--temp", "0.5", "temp was 0.0, now 0.5"},
                                                 {"--stop", "x", "stop was [\"<end>\"], now"},
                                                 {"--raw", "", "raw was false, now true"},
                                                 {"--decode", "reference", "decode was \"cpu\", now"},
                                                 {"-m", kTiny + ".q4_1.gguf", "model was \"llama-"}}) {
      folder_.Write("cut.jsonl", text);
      std::vector<std::string> command = {"batch", folder_ / "in.jsonl", "-o", folder_ / "cut.jsonl"};
      if (flag != "-m") command.insert(command.end(), {"-m", kTiny});
      command.insert(command.end(), {"--stop", "<end>", flag});
      if (!value.empty()) command.push_back(value);
      const std::string error = ErrorOf(2, command);
      EXPECT_TRUE(Contains(error, said)) << error;
      EXPECT_TRUE(Contains(error, "continue with those, or give another output")) << error;
      EXPECT_EQ(ReadTextFile(folder_ / "cut.jsonl"), text);
    }
  }
  // What changes no text may change.
  folder_.Write("cut.jsonl", half);
  EXPECT_EQ(
      Batch({"-o", folder_ / "cut.jsonl", "--stop", "<end>", "--parallel", "2", "--prefix-cache-mb", "0"})
          .code,
      0);
  EXPECT_EQ(Texts(Answers("cut.jsonl")), Texts(Answers("out.jsonl")));
  for (const Json& answer : Answers("cut.jsonl")) EXPECT_EQ(answer["run"], Answers("out.jsonl")[0]["run"]);
}

TEST_F(BatchTest, ALineThatFailsDoesNotStopTheOthers) {
  folder_.Write("in.jsonl",
                "{\"prompt\": \"a\", \"raw\": true, \"max_tokens\": 2}\n"
                "no JSON\n"
                "\n"
                "{\"prompt\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
                "{\"id\": \"x\", \"max_tokens\": 3}\n"
                "{\"prompt\": \"a\", \"colour\": \"green\"}\n"
                "{\"prompt\": \"\"}\n"
                "{\"prompt\": \"a\", \"top_p\": 2}\n"
                "{\"prompt\": \"a\", \"stop\": [\"\"]}\n"
                "{\"prompt\": \"a\", \"logit_bias\": {\"x\": 1}}\n"
                "{\"prompt\": \"" +
                    std::string(3000, 'a') +
                    "\"}\n"
                    "{\"prompt\": \"a\", \"raw\": true, \"max_tokens\": 0}");
  const Outcome outcome = Batch({"-o", folder_ / "out.jsonl"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("11 lines answered, 0 of them before, 9 errors"), std::string::npos)
      << outcome.err;
  const auto answers = Answers("out.jsonl");
  ASSERT_EQ(answers.size(), 11u);
  EXPECT_EQ(answers[0]["tokens"], 2);
  EXPECT_EQ(answers[10]["tokens"], 0);
  EXPECT_EQ(answers[3]["id"], "x");
  for (size_t i = 1; i < 10; ++i) {
    EXPECT_TRUE(answers[i]["error"]["kind"].is_string()) << answers[i];
    EXPECT_FALSE(answers[i].contains("text"));
  }
  for (size_t i = 1; i < 10; ++i) EXPECT_EQ(answers[i]["error"]["kind"], "bad_request") << answers[i];
  EXPECT_EQ(answers[4]["error"]["message"],
            (folder_ / "in.jsonl").string() +
                ": line 5: no line has \"colour\"; what one may have is prompt, messages, raw, tools, "
                "chat_template_kwargs, id, max_tokens, temperature, top_k, top_p, min_p, seed, stop, "
                "repetition_penalty, presence_penalty, frequency_penalty, logit_bias");
}

TEST_F(BatchTest, NullIsAsIfTheKeyWereAbsent) {
  folder_.Write("in.jsonl",
                R"({"prompt": "a", "raw": true, "max_tokens": 4, "seed": 1}
{"prompt": "a", "raw": true, "max_tokens": 4, "seed": 1, "messages": null, "tools": null, "id": null,
)"
                R"( "chat_template_kwargs": null, "temperature": null, "top_k": null, "top_p": null,)"
                R"( "min_p": null, "stop": null, "repetition_penalty": null, "presence_penalty": null,)"
                R"( "frequency_penalty": null, "logit_bias": null}
{"messages": [{"role": "user", "content": "a"}], "prompt": null, "raw": null, "max_tokens": null, "seed": null}
{"messages": [{"role": "user", "content": "a"}], "raw": false, "max_tokens": 0}
{"messages": [{"role": "user", "content": "a"}], "raw": true}
)");
  std::string input = ReadTextFile(folder_ / "in.jsonl");
  input.erase(input.find(",\n ") + 1, 1);  // one line
  folder_.Write("in.jsonl", input);
  EXPECT_EQ(Batch({"-o", folder_ / "out.jsonl", "-n", "3"}).code, 2);
  const auto answers = Answers("out.jsonl");
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers[1]["text"], answers[0]["text"]);
  EXPECT_FALSE(answers[1].contains("id"));
  EXPECT_EQ(answers[2]["tokens"], 3);
  EXPECT_EQ(answers[3]["tokens"], 0);
  EXPECT_TRUE(Contains(answers[4]["error"]["message"], "\"raw\" goes with \"prompt\""));
}

TEST_F(BatchTest, IdsComeBackAsTheyAreWritten) {
  const std::vector<std::string> ids = {"1e999",
                                        "18446744073709551616",
                                        "-123456789012345678901234567890",
                                        "7",
                                        "1.10",
                                        "0.1e-400",
                                        R"("18446744073709551616")",
                                        R"("x\u0041\/\n")",
                                        R"({ "a" : [1,  2e400, "]}\""], "id" : 3 })",
                                        "[ ]",
                                        "true"};
  std::string input;
  for (const std::string& id : ids)
    input += R"({"prompt": "a", "raw": true, "max_tokens": 0, "id": )" + id + "}\n" + R"({"\u0069d":)" + id +
             R"(, "prompt": ""})" + "\n";
  folder_.Write("in.jsonl", input);
  EXPECT_EQ(Batch({"-o", folder_ / "out.jsonl"}).code, 2);
  const auto lines = LinesOf(folder_ / "out.jsonl");
  ASSERT_EQ(lines.size(), 2 * ids.size());
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_TRUE(Contains(lines[i], "\"id\":" + ids[i / 2] + (i % 2 == 0 ? ",\"text\":" : ",\"error\":")))
        << lines[i];
  EXPECT_EQ(Batch({"-o", folder_ / "out.jsonl"}).code, 0) << "all are answered, whatever their ids";
  EXPECT_EQ(LinesOf(folder_ / "out.jsonl"), lines);
  // A line that is no JSON has no id.
  folder_.Write("in.jsonl", "{\"id\": 01, \"prompt\": \"a\"}\n{\"id\": [1, \"prompt\": \"a\"}\n");
  EXPECT_EQ(Batch({"-o", folder_ / "bad.jsonl"}).code, 2);
  for (const Json& answer : Answers("bad.jsonl")) {
    EXPECT_FALSE(answer.contains("id")) << answer;
    EXPECT_EQ(answer["error"]["kind"], "bad_request");
  }
}

// What Windows and old Macs write, and what comes through a pipe.
TEST_F(BatchTest, ReadsLinesFromEverywhere) {
  const std::string one = R"({"prompt": "a", "raw": true, "max_tokens": 3})",
                    two = R"({"prompt": "b", "raw": true, "max_tokens": 3})";
  folder_.Write("in.jsonl", one + "\n" + two + "\n");
  ASSERT_EQ(Batch({"-o", folder_ / "out.jsonl"}).code, 0);
  const auto texts = [&](const std::string& name) {
    std::vector<std::string> all;
    for (const Json& answer : Answers(name)) all.push_back(answer["input"].dump() + answer["text"].dump());
    return all;
  };
  const auto expected = texts("out.jsonl");
  ASSERT_EQ(expected.size(), 2u);
  int number = 0;
  for (const std::string& input :
       {"\xEF\xBB\xBF" + one + "\r\n\r\n" + two + "\r\n", one + "\r" + two, "\n \n" + one + "\n" + two}) {
    const std::string name = "out" + std::to_string(number++);
    folder_.Write("in.jsonl", input);
    EXPECT_EQ(Batch({"-o", folder_ / name}).code, 0);
    EXPECT_EQ(texts(name), expected);
    for (const char* path : {"-", "/dev/stdin"}) {
      const std::string piped = "piped" + std::to_string(number++);
      const Outcome outcome =
          RunEngine({"batch", "-m", kTiny, path, "-o", folder_ / piped}, {.input = input});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_EQ(texts(piped), expected);
    }
  }
  const Outcome bad =
      RunEngine({"batch", "-m", kTiny, "-", "-o", folder_ / "bad"}, {.input = "{\"prompt\": \"\"}\n"});
  EXPECT_EQ(Answers("bad")[0]["error"]["message"], "standard input: line 1: the prompt is empty");
}

TEST_F(BatchTest, StopsAtStopStrings) {
  folder_.Write("in.jsonl", "{\"prompt\": \"Hello\", \"raw\": true, \"max_tokens\": 30}\n");
  ASSERT_EQ(Batch({"-o", folder_ / "long.jsonl"}).code, 0);
  const std::string text = Answers("long.jsonl")[0]["text"];
  std::string stop;  // letters only, from the middle
  for (size_t i = 3; i + 2 < text.size() && stop.empty(); ++i)
    if (std::isalpha(static_cast<unsigned char>(text[i])) &&
        std::isalpha(static_cast<unsigned char>(text[i + 1])))
      stop = text.substr(i, 2);
  ASSERT_FALSE(stop.empty()) << text;
  ASSERT_EQ(Batch({"-o", folder_ / "short.jsonl", "--stop", stop}).code, 0);
  const Json answer = Answers("short.jsonl")[0];
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(answer["text"], text.substr(0, text.find(stop)));
}

TEST_F(BatchTest, AFileThatIsNotThereIsSaid) {
  const Outcome outcome = Batch({"-o", folder_ / "out.jsonl"});
  EXPECT_EQ(outcome.code, 3);
  Questions(1);
  EXPECT_EQ(Batch({"-o", folder_ / "no/such/folder.jsonl"}).code, 7);
  EXPECT_EQ(Batch({"-o", folder_ / "out.jsonl", "--prefill-threads", "4000"}).code, 2);
}

}  // namespace
}  // namespace pd::test
