// `run` with the real program: what it prints, and how it ends.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cctype>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/json.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";
const std::string kTinyGguf = PD_TEST_DATA "/models/llama-base.q4_1.gguf";

class RunTest : public ::testing::Test {
 protected:
  // Measurements of this machine are kept here and not in the user's home.
  TempFolder cache_;

  Outcome Run(std::vector<std::string> flags, Launch launch = {}) const {
    flags.insert(flags.begin(), {"run", "-m", kTiny});
    launch.environment.push_back("PD_ENGINE_CACHE=" + cache_.path().string());
    return RunEngine(flags, launch);
  }

  // The one object that --json prints.
  Json RunJson(std::vector<std::string> flags, const Launch& launch = {}) const {
    flags.emplace_back("--json");
    const Outcome outcome = Run(flags, launch);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
    return ParseJson(outcome.out, "standard output");
  }
};

std::vector<std::string> Keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST_F(RunTest, JsonHasItsFields) {
  const Json json = RunJson({"--raw", "-p", "The capital of France is", "-n", "20", "--prefill", "cpu"});
  EXPECT_EQ(Keys(json), (std::vector<std::string>{"model", "text", "tokens", "token_ids", "prompt_tokens",
                                                  "finish_reason", "load", "prefill", "handoff", "decode",
                                                  "ttft_ms", "seed"}));
  EXPECT_EQ(Keys(json["prefill"]),
            (std::vector<std::string>{"device", "tokens", "ms", "tokens_per_s", "tflop_per_s", "joules"}));
  EXPECT_EQ(Keys(json["handoff"]), (std::vector<std::string>{"bytes", "ms", "joules"}));
  EXPECT_EQ(Keys(json["decode"]), (std::vector<std::string>{"device", "tokens", "ms", "tokens_per_s",
                                                            "joules", "gb_per_s", "machine_gb_per_s"}));
  EXPECT_EQ(json["model"], kTiny);
  EXPECT_TRUE(json["text"].is_string());
  const int tokens = json["tokens"], prompt = json["prompt_tokens"];
  EXPECT_EQ(json["token_ids"].size(), size_t(tokens));
  EXPECT_EQ(json["decode"]["tokens"], tokens);
  EXPECT_EQ(json["prefill"]["tokens"], prompt - 1);
  EXPECT_EQ(json["prefill"]["device"], "cpu");
  EXPECT_EQ(json["handoff"]["bytes"], 0) << "prefill and decode are one device";
  if (std::thread::hardware_concurrency() >= 2) {
    const Json two =
        RunJson({"--raw", "-p", "The capital of France is", "-n", "20", "--prefill-threads", "1"});
    // Two layers of two KV heads of 16 values, keys and values of 16 bits each.
    EXPECT_EQ(two["handoff"]["bytes"], (prompt - 1) * 2 * 2 * 16 * 2 * 2);
    EXPECT_EQ(two["text"], json["text"]);
  }
  EXPECT_EQ(json["seed"], nullptr);
  for (const char* phase : {"load", "prefill", "decode"}) EXPECT_GT(json[phase]["ms"], 0) << phase;
  EXPECT_GT(json["ttft_ms"], 0);
  EXPECT_GT(json["decode"]["tokens_per_s"], 0);
  EXPECT_GT(json["decode"]["machine_gb_per_s"], 0);
}

TEST_F(RunTest, StreamedTextIsTheJsonText) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--raw", "-p", "2 + 2 equals", "-n", "60"},
        {"-p", "Hello", "-n", "30"},
        {"-p", "Hello", "--system", "Be brief.", "-n", "30", "--temp", "1.5", "--seed", "9"},
        {"--raw", "-p", "x", "-n", "200", "--temp", "3", "--seed", "4", "--logit-bias", "2:-100",
         "--logit-bias", "0:-100"}}) {
    const Json json = RunJson(flags);
    const Outcome streamed = Run(flags);
    EXPECT_EQ(streamed.code, 0);
    EXPECT_EQ(streamed.out, json["text"].get<std::string>() + "\n");
    EXPECT_NE(streamed.err.find("first token"), std::string::npos) << streamed.err;
  }
}

TEST_F(RunTest, SaysTheSameWhateverTheWay) {
  const std::vector<std::string> base = {
      "--raw",  "-p",           "The quick brown fox jumps over the lazy dog",
      "-n",     "40",           "--logit-bias",
      "2:-100", "--logit-bias", "0:-100"};
  const auto ids = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), base.begin(), base.end());
    return RunJson(flags)["token_ids"];
  };
  const Json expected = ids({});
  EXPECT_EQ(expected.size(), 40u);
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--prefill-chunk", "1"},
                                                {"--prefill-chunk", "7"},
                                                {"--threads", "1"},
                                                {"--threads", "3"},
                                                {"--ctx", "100"},
                                                {"--quiet"}})
    EXPECT_EQ(ids(flags), expected);
  EXPECT_EQ(ids({"--prefill", "reference", "--decode", "reference"}), ids({"--decode", "reference"}));
}

TEST_F(RunTest, ReadsThePromptFromEverywhere) {
  const auto text = [&](std::vector<std::string> flags, const Launch& launch = {}) {
    flags.insert(flags.end(), {"--raw", "-n", "10"});
    return RunJson(flags, launch)["text"];
  };
  const TempFolder folder;
  const Json expected = text({"-p", "two\nlines"});
  EXPECT_EQ(text({"-f", folder.Write("prompt.txt", "two\nlines")}), expected);
  EXPECT_EQ(text({"-f", folder.Write("prompt.txt", "two\nlines\n")}),
            expected);  // editors add the last newline
  EXPECT_EQ(text({}, {.input = "two\nlines\n"}), expected);
  EXPECT_EQ(text({"-f", "-"}, {.input = "two\nlines"}), expected);
  EXPECT_EQ(text({"-f", "/dev/stdin"}, {.input = "two\nlines\n"}), expected);
  // What Windows and old Macs write.
  EXPECT_EQ(text({"-f", folder.Write("prompt.txt", "\xEF\xBB\xBFtwo\r\nlines\r\n")}), expected);
  EXPECT_EQ(text({}, {.input = "\xEF\xBB\xBFtwo\rlines\r"}), expected);

  const std::string fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(fifo) << "two\nlines\n"; });
  EXPECT_EQ(text({"-f", fifo}), expected);
  writer.join();
}

// "[answer]" once ended the text at "answer", and "[no,5]" at either.
TEST_F(RunTest, StopsAtWhatWasTypedOnly) {
  const std::vector<std::string> base = {"--raw",        "-p",     "Hello",        "-n",    "40",
                                         "--logit-bias", "2:-100", "--logit-bias", "0:-100"};
  const auto text = [&](std::vector<std::string> stops) {
    std::vector<std::string> flags = base;
    for (const std::string& stop : stops) flags.insert(flags.end(), {"--stop", stop});
    return RunJson(flags)["text"].get<std::string>();
  };
  const std::string whole = text({});
  std::string inside;  // letters of the text
  for (size_t i = 5; i + 1 < whole.size() && inside.empty(); ++i)
    if (std::isalpha(static_cast<unsigned char>(whole[i])) &&
        std::isalpha(static_cast<unsigned char>(whole[i + 1])))
      inside = whole.substr(i, 2);
  ASSERT_FALSE(inside.empty()) << whole;
  EXPECT_EQ(text({inside}), whole.substr(0, whole.find(inside)));
  EXPECT_EQ(text({"[" + inside + "]", "[x," + inside + "]", inside + "," + inside}), whole);
  EXPECT_EQ(text({"[" + inside + "]", inside}), whole.substr(0, whole.find(inside)));
}

TEST_F(RunTest, FinishesForTheRightReason) {
  const Json base =
      RunJson({"--raw", "-p", "Hello", "-n", "8", "--logit-bias", "2:-100", "--logit-bias", "0:-100"});
  EXPECT_EQ(base["finish_reason"], "length");
  EXPECT_EQ(base["tokens"], 8);

  const Json none = RunJson({"--raw", "-p", "Hello", "-n", "0"});
  EXPECT_EQ(none["finish_reason"], "length");
  EXPECT_EQ(none["tokens"], 0);
  EXPECT_EQ(none["text"], "");
  EXPECT_EQ(none["ttft_ms"], nullptr);
  EXPECT_EQ(none["decode"]["tokens_per_s"], nullptr);

  const Json end = RunJson({"--raw", "-p", "Hello", "--logit-bias", "2:100"});  // token 2 ends the text
  EXPECT_EQ(end["finish_reason"], "stop");
  EXPECT_EQ(end["token_ids"], Json::array({2}));
  EXPECT_EQ(end["text"], "");
  const Json second = RunJson({"--raw", "-p", "Hello", "--logit-bias", "0:100"});  // so does token 0
  EXPECT_EQ(second["finish_reason"], "stop");

  const Json full =
      RunJson({"--raw", "-p", "Hello", "--ctx", "20", "--logit-bias", "2:-100", "--logit-bias", "0:-100"});
  EXPECT_EQ(full["finish_reason"], "length");
  EXPECT_EQ(full["tokens"], 21 - full["prompt_tokens"].get<int>());

  // A stop string ends the text before it, wherever the borders of tokens are. The longest run of letters of
  // a text that is mostly noise spans several tokens.
  std::vector<std::string> flags = {"--raw", "-p", "Hello", "-n", "60", "--temp", "1", "--seed", "3"};
  const std::string text = RunJson(flags)["text"];
  std::string run, longest;
  for (char c : text) {
    if (std::isalpha(static_cast<unsigned char>(c)))
      run += c;
    else
      run.clear();
    if (run.size() > longest.size()) longest = run;
  }
  ASSERT_GE(longest.size(), 4u) << text;
  const std::string stop = longest.substr(1, longest.size() - 2);
  flags.insert(flags.end(), {"--stop", "never to be seen", "--stop", stop});
  const Json stopped = RunJson(flags);
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["text"], text.substr(0, text.find(stop)));
}

TEST_F(RunTest, SeedsMakeDrawsRepeatable) {
  const std::vector<std::string> base = {"--raw", "-p", "Hello", "-n", "30", "--temp", "1"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), base.begin(), base.end());
    return RunJson(flags);
  };
  const Json first = with({"--seed", "7"});
  EXPECT_EQ(first["seed"], 7);
  EXPECT_EQ(with({"--seed", "7"})["token_ids"], first["token_ids"]);
  EXPECT_NE(with({"--seed", "8"})["token_ids"], first["token_ids"]);
  const Json drawn = with({});
  EXPECT_EQ(with({"--seed", drawn["seed"].dump()})["token_ids"], drawn["token_ids"]);
}

TEST_F(RunTest, LogprobsAreOfTheTokens) {
  const Json json = RunJson({"--raw", "-p", "Hello", "-n", "5", "--logprobs", "3", "--logit-bias", "2:-100"});
  ASSERT_EQ(json["logprobs"].size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const Json& entry = json["logprobs"][i];
    EXPECT_EQ(entry["token"], json["token_ids"][i]);
    ASSERT_EQ(entry["top"].size(), 3u);
    EXPECT_EQ(entry["top"][0]["token"], entry["token"]);  // greedy
    EXPECT_EQ(entry["top"][0]["logprob"], entry["logprob"]);
    EXPECT_GE(entry["top"][1]["logprob"], entry["top"][2]["logprob"]);
    EXPECT_LT(entry["logprob"], 0);
  }
  EXPECT_TRUE(RunJson({"--raw", "-p", "Hello", "-n", "1", "--logprobs", "0"})["logprobs"][0]["top"].empty());
}

TEST_F(RunTest, QuietIsQuiet) {
  const Outcome outcome = Run({"--raw", "-p", "Hello", "-n", "5", "-q"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(RunTest, EndsQuietlyWhenNobodyReads) {
  const Outcome outcome = Run({"--raw", "-p", "Hello", "-n", "50"}, {.close_output = true});
  EXPECT_EQ(outcome.code, 141);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(RunTest, ReadsGgufToo) {
  const Outcome outcome = RunEngine({"run", "-m", kTinyGguf, "-p", "Hello", "-n", "5"},
                                    {.environment = {"PD_ENGINE_CACHE=" + cache_.path().string()}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

// On the default model, whose text takes seconds.
TEST_F(RunTest, CtrlCEndsCleanly) {
  const char* model = std::getenv("PD_TEST_MODEL");
  ASSERT_TRUE(model && std::filesystem::exists(model))
      << "PD_TEST_MODEL names no default model; ./dev test fetches it";
  const Launch launch = {.environment = {"PD_ENGINE_CACHE=" + cache_.path().string()},
                         .on_first_output = [](int pid) { kill(pid, SIGINT); }};
  const Outcome outcome =
      RunEngine({"run", "-m", model, "--raw", "-p", "Once upon a time", "-n", "8000"}, launch);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_GT(outcome.out.size(), 1u);
  EXPECT_EQ(outcome.out.back(), '\n');
  EXPECT_NE(outcome.err.find("first token"), std::string::npos) << outcome.err;
}

TEST_F(RunTest, DefaultModelKnowsParis) {
  const char* model = std::getenv("PD_TEST_MODEL");
  ASSERT_TRUE(model && std::filesystem::exists(model))
      << "PD_TEST_MODEL names no default model; ./dev test fetches it";
  const Outcome outcome =
      RunEngine({"run", "-m", model, "--raw", "-p", "The capital of France is", "-n", "4"},
                {.environment = {"PD_ENGINE_CACHE=" + cache_.path().string()}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with(" Paris")) << outcome.out;
}

}  // namespace
}  // namespace pd::test
