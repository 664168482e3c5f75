// Ctrl-C while a device computes a long chunk, with the real program.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/json.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

using Clock = std::chrono::steady_clock;

// A tiny model whose context holds 60,000 digits, each a token: attention over them takes many seconds.
class InterruptTest : public ::testing::Test {
 protected:
  InterruptTest() {
    CopyModel("llama-base", folder_ / "model");
    Json config = ParseJson(ReadTextFile(folder_ / "model/config.json"), "config.json");
    config["max_position_embeddings"] = 65536;
    folder_.Write("model/config.json", config.dump());
  }

  // Interrupts the command after a second of its work: how it ended, and how long after that.
  struct Interrupted {
    Outcome outcome;
    double seconds = 0;
  };
  Interrupted Interrupt(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin() + 1, {"-m", folder_ / "model"});
    Clock::time_point sent;
    const Outcome outcome = RunEngine(
        arguments,
        {.environment = {"PD_ENGINE_CACHE=" + (folder_ / "cache").string()}, .on_start = [&](int pid) {
           std::this_thread::sleep_for(std::chrono::milliseconds(1200));
           sent = Clock::now();
           EXPECT_EQ(kill(pid, SIGINT), 0);
         }});
    return {outcome, std::chrono::duration<double>(Clock::now() - sent).count()};
  }
  void ExpectSoon(const Interrupted& run) const {
    EXPECT_EQ(run.outcome.code, 130) << run.outcome.err;
    EXPECT_LT(run.seconds, 2) << "the chunk was computed to its end";
    RecordProperty("seconds", std::to_string(run.seconds));
  }

  const TempFolder folder_;
  const std::string digits_ = std::string(60000, '7');
};

TEST_F(InterruptTest, EndsAPromptOnTheDecodeDevice) {
  const auto run = Interrupt({"run", "--raw", "-f", folder_.Write("prompt", digits_), "--prefill", "cpu",
                              "--prefill-chunk", "65536"});
  ExpectSoon(run);
  EXPECT_FALSE(Contains(run.outcome.out, "7"));
}

TEST_F(InterruptTest, EndsAChunkOfALaneOfItsOwn) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor cannot be divided";
  ExpectSoon(Interrupt({"run", "--raw", "-f", folder_.Write("prompt", digits_), "--prefill-threads", "1",
                        "--prefill-chunk", "65536"}));
}

TEST_F(InterruptTest, EndsLogits) {
  std::string ids = "7";
  for (int i = 1; i < 60000; ++i) ids += ",7";
  ExpectSoon(Interrupt({"logits", "-i", folder_.Write("ids", ids), "-o", folder_ / "logits"}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "logits"));
}

// What was cut short is no answer: the line is asked again by the next run.
TEST_F(InterruptTest, EndsABatchWithoutAnswersCutShort) {
  const Json line = {{"prompt", digits_}, {"raw", true}, {"max_tokens", 1}};
  const std::string quick = R"({"prompt": "a", "raw": true, "max_tokens": 1})";
  const std::string input = folder_.Write("in.jsonl", quick + "\n" + line.dump() + "\n" + quick + "\n");
  ExpectSoon(Interrupt({"batch", input, "-o", folder_ / "out.jsonl"}));
  const std::string answers = ReadTextFile(folder_ / "out.jsonl");
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 1) << answers;
  EXPECT_FALSE(Contains(answers, "cancelled")) << answers;
}

}  // namespace
}  // namespace pd::test
