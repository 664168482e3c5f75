// bench, calibrate and --prefill auto with the real program.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/json.h"
#include "open/open.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";

class MeasuringTest : public ::testing::Test {
 protected:
  TempFolder cache_;  // profiles and measurements of these tests
  const Launch launch_ = {.environment = {"PD_ENGINE_CACHE=" + cache_.path().string()}};

  Json JsonOf(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = RunEngine(arguments, launch_);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ParseJson(outcome.out, "standard output");
  }
  std::string OutputOf(const std::vector<std::string>& arguments) const {
    const Outcome outcome = RunEngine(arguments, launch_);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
  // One line on standard error.
  std::string ErrorOf(int code, const std::vector<std::string>& arguments) const {
    return test::ErrorOf(code, arguments, launch_);
  }
  Json Run(std::vector<std::string> flags) const {
    flags.insert(flags.begin(),
                 {"run", "-m", kTiny, "--raw", "-p", "The capital of France is", "-n", "5", "-q"});
    return JsonOf(flags);
  }
};

TEST_F(MeasuringTest, BenchHasARowForEverything) {
  const Json json = JsonOf({"bench", "-m", kTiny, "--device", "cpu,reference", "--prompts", "4,16",
                            "--batches", "1,3", "--context", "8", "--repeat", "2", "-q"});
  ASSERT_EQ(json["rows"].size(), 8u);
  ASSERT_EQ(json["devices"].size(), 2u);
  for (const Json& device : json["devices"]) {
    EXPECT_GT(device["peak_tflop_per_s"], 0);
    EXPECT_GT(device["machine_gb_per_s"], 0);
    EXPECT_GT(device["cold_start"]["open_ms"], 0);
    EXPECT_GT(device["cold_start"]["first_ms"], 0);
  }
  for (const Json& row : json["rows"]) {
    EXPECT_GT(row["ms"], 0);
    EXPECT_LE(row["least_ms"], row["ms"]);
    EXPECT_GE(row["most_ms"], row["ms"]);
    EXPECT_EQ(row["impossible"], nullptr) << row;
    EXPECT_GT(row["tflop_per_s"], 0);
    EXPECT_LE(row["percent_of_peak"], 100);
    EXPECT_GT(row["gb_per_s"], 0);
  }
  EXPECT_EQ(json["rows"][3]["batch"], 3);
  EXPECT_EQ(json["rows"][3]["phase"], "decode");
  const std::string table = OutputOf({"bench", "-m", kTiny, "--device", "cpu", "--prompts", "4", "--batches",
                                      "1", "--context", "8", "--repeat", "1", "-q"});
  EXPECT_TRUE(Contains(table, "cold start") && Contains(table, "TFLOP/s")) << table;
}

TEST_F(MeasuringTest, BenchSaysWhatItCouldNotMeasure) {
  const Json json = JsonOf({"bench", "-m", kTiny, "--device", "cpu", "--prompts", "1000000", "--batches", "1",
                            "--context", "8", "--repeat", "1", "-q"});
  EXPECT_EQ(json["rows"].size(), 1u);
  EXPECT_EQ(json["devices"][0]["notes"].size(), 1u);
}

TEST_F(MeasuringTest, BenchErrors) {
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "--device", "toaster"}), "there is no device 'toaster'"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "--prompts", "4,x"}), "--prompts: 'x' is not a whole number"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "--batches", "0"}), "--batches: '0'"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "--batches", ""}), "--batches"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "frobnicate"}), "frobnicate"));
  EXPECT_TRUE(Contains(ErrorOf(3, {"bench", "-m", "absent.gguf"}), "absent.gguf"));
  EXPECT_TRUE(Contains(ErrorOf(3, {"bench", "-m", kTiny, "--device", "coreml"}), "pd-engine export"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "--device", "cpu", "--quantize", "q4"}), "--quantize: only mlx"));
  EXPECT_TRUE(
      Contains(ErrorOf(2, {"bench", "--device", "cpu", "--ane", "x"}), "--bundle: only device coreml"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "-m", kTiny, "overlap"}),
                       "--model: 'bench overlap' has flags of its own"));
}

TEST_F(MeasuringTest, OverlapWatchesBothArrangements) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor cannot be divided";
  const Json json = JsonOf({"bench", "overlap", "-m", kTiny, "--streams", "2", "--prompt", "40", "--repeat",
                            "2", "--svg", cache_ / "lanes.svg", "-q"});
  for (const char* lanes : {"two_lanes", "one_lane"}) {
    EXPECT_GT(json[lanes]["decode_ratio"], 0) << lanes;
    EXPECT_EQ(json[lanes]["decode_ratios"].size(), 2u) << lanes;
    EXPECT_GT(json[lanes]["gap_p99_ms"], 0) << lanes;
    EXPECT_GT(json[lanes]["alone"]["tokens_per_s"], 0) << lanes;
    EXPECT_EQ(json[lanes]["prefill_tokens"], 39) << lanes;
  }
  EXPECT_GT(json["memory_bound"]["decode_ratio"], 0);
  EXPECT_TRUE(Contains(ReadTextFile(cache_ / "lanes.svg"), "prefill lane"));
}

TEST_F(MeasuringTest, OverlapErrors) {
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "overlap", "--streams", "0"}), "--streams: '0'"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "overlap", "--prompt", "1"}), "--prompt: '1'"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "overlap", "-m", kTiny, "--prompt", "1000000"}), "context"));
  EXPECT_TRUE(
      Contains(ErrorOf(2, {"bench", "overlap", "-m", kTiny, "--threads", "1"}), "--threads: two lanes"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "overlap", "--prefix-cache-mb", "1"}), "--prefix-cache-mb"));
}

// Whether something could read prompts beside the CPU, which decodes; nothing is exported here for coreml.
bool IsThereAChoice() {
  return std::ranges::any_of(UsefulDeviceNames(),
                             [](const std::string& name) { return name != "cpu" && name != "coreml"; });
}

TEST_F(MeasuringTest, WithoutAProfileAutoSaysSoWhereItMatters) {
  const Json json = Run({});
  EXPECT_EQ(json["prefill"]["device"], "cpu");
  EXPECT_EQ(json["prefill"].contains("why"), IsThereAChoice()) << json["prefill"];
  if (std::thread::hardware_concurrency() >= 2) {
    EXPECT_TRUE(Contains(Run({"--prefill-threads", "1"})["prefill"]["why"], "not calibrated"));
  }
  EXPECT_EQ(Run({"--prefill", "auto"})["text"], json["text"]);
  EXPECT_FALSE(Run({"--prefill", "cpu"})["prefill"].contains("why"));
  EXPECT_FALSE(std::filesystem::exists(cache_.path() / "profiles"))
      << "nothing was measured behind one's back";
}

TEST_F(MeasuringTest, CalibrationIsFoundAgain) {
  const Json calibration = JsonOf({"calibrate", "-m", kTiny, "-q"});
  const std::string file = calibration["profile"];
  EXPECT_TRUE(file.starts_with(cache_.path().string()));
  EXPECT_LT(calibration["seconds"], 60);
  EXPECT_EQ(ParseJson(ReadTextFile(file), file), calibration["costs"]);

  const Json planned = Run({});
  EXPECT_TRUE(Contains(planned["prefill"]["why"], " ms")) << planned;
  EXPECT_EQ(planned["prefill"]["tokens"].get<int>() +
                planned["prefill"].value("tail", Json{{"tokens", 0}})["tokens"].get<int>(),
            planned["prompt_tokens"].get<int>() - 1);
  // Another division of the machine is another machine.
  const Json other = Run({"--threads", "1"});
  EXPECT_EQ(other["prefill"].contains("why"), IsThereAChoice()) << other["prefill"];
  EXPECT_EQ(other["text"], planned["text"]);

  // plan and simulate take the file.
  EXPECT_TRUE(Contains(OutputOf({"plan", "--chip", file}), "should read"));
  EXPECT_TRUE(
      Contains(OutputOf({"simulate", "--profile", file, "--trace", "examples/trace-agents-and-chats.jsonl"}),
               "two lanes"));

  WriteFileAtomically(file, "{\"version\": 2}");
  EXPECT_TRUE(Contains(ErrorOf(5, {"run", "-m", kTiny, "--raw", "-p", "x"}), file));
}

TEST_F(MeasuringTest, CalibrationOfTwoLanes) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor cannot be divided";
  const std::vector<std::string> split = {"--prefill-threads", "1", "--decode-threads", "1"};
  std::vector<std::string> calibrate = {"calibrate", "-m", kTiny, "-q"};
  calibrate.insert(calibrate.end(), split.begin(), split.end());
  const std::string table = OutputOf(calibrate);
  EXPECT_TRUE(Contains(table, "1 for prefill and 1 for decode")) << table;
  EXPECT_TRUE(Contains(table, "kept in " + cache_.path().string())) << table;
  const Json planned = Run(split);
  EXPECT_TRUE(Contains(planned["prefill"]["why"], " ms"));
  EXPECT_EQ(planned["text"], Run({})["text"]);
}

TEST_F(MeasuringTest, CalibrateErrors) {
  EXPECT_TRUE(Contains(ErrorOf(3, {"calibrate", "-m", "absent.gguf"}), "absent.gguf"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"calibrate", "--decode", "toaster"}), "toaster"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"calibrate", "--threads", "0"}), "--threads"));
  // It measures every device, with its own chunks, and keeps nothing of prompts.
  for (const char* flag :
       {"--prefill", "--prefill-chunk", "--prefix-cache-dir", "--prefix-cache-mb", "--prefix-cache-dir-mb"}) {
    const std::string error = ErrorOf(2, {"calibrate", flag, "1"});
    EXPECT_TRUE(Contains(error, "not expected") && Contains(error, std::string(flag) + ";")) << error;
  }
}

}  // namespace
}  // namespace pd::test
