// `batch` with the real program.
#include <gtest/gtest.h>

#include <csignal>
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
  for (size_t i : {1, 2, 3, 5, 6, 7, 8, 9})
    EXPECT_EQ(answers[i]["error"]["kind"], "bad_request") << answers[i];
  EXPECT_EQ(answers[4]["error"]["kind"], "unsupported");
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
