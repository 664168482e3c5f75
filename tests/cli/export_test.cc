// export, inspect of what it wrote, and run with it: with the real program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "base/json.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

namespace fs = std::filesystem;

const std::string kTiny = PD_TEST_DATA "/models/llama-base";

class ExportTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  const Launch launch_ = {.environment = {"PD_ENGINE_CACHE=" + (folder_ / "cache").string()}};

  Outcome Export(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {"export", kTiny});
    return RunEngine(flags, launch_);
  }
  Json ExportJson(std::vector<std::string> flags) const {
    flags.insert(flags.end(), {"-o", folder_ / "bundle", "--json"});
    const Outcome outcome = Export(flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return ParseJson(outcome.out, "standard output");
  }
  std::string ErrorOf(int code, const std::vector<std::string>& arguments) const {
    return test::ErrorOf(code, arguments, launch_);
  }
};

TEST_F(ExportTest, FlagsDecideWhatIsWritten) {
  const Json plain = ExportJson({});
  EXPECT_EQ(plain["weights"], "fp16");
  EXPECT_EQ(plain["functions"].size(), 4u);  // chunks 128 and 512, histories 0 and 512: a context of 512
  EXPECT_EQ(plain["shards"].size(), 1u);
  ASSERT_EQ(plain["layers"].size(), 2u);
  EXPECT_GT(plain["layers"][0]["largest"], 0);
  EXPECT_FALSE(plain["layers"][0].contains("k_cosine"));  // fp16 is what others are held against

  const Json other = ExportJson({"--weights", "lut4", "--chunks", "64,32", "--history", "0,64,128",
                                 "--attention", "grouped", "--keys", "raw"});
  EXPECT_EQ(other["functions"].size(), 6u);
  EXPECT_EQ(other["functions"][0], (Json{{"tokens", 32}, {"history", 0}}));
  EXPECT_GT(other["layers"][1]["k_cosine"], 0.9);
  EXPECT_LT(other["written_bytes"], plain["written_bytes"]);

  const Json unchecked = ExportJson({"--weights", "int8", "--check", "none"});
  EXPECT_EQ(unchecked["layers"].size(), 0u);
  const Json sampled = ExportJson({"--weights", "int8", "--sample", folder_.Write("text", "Hello, hello.")});
  EXPECT_GT(sampled["layers"][1]["k_cosine"], 0.99);
}

TEST_F(ExportTest, SaysWhatItWrote) {
  const Outcome outcome = Export({"-o", folder_ / "bundle", "--weights", "int8"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"bundle", "int8", "128 tokens after up to 0 / 512", "k cosine", "MB of weights"})
    EXPECT_TRUE(Contains(outcome.out, part)) << part << "\n" << outcome.out;
  EXPECT_EQ(Export({"-o", folder_ / "bundle", "-q"}).out, "");
}

TEST_F(ExportTest, InspectListsEveryOp) {
  ExportJson({"--chunks", "32", "--history", "0,64"});
  const Json json =
      ParseJson(RunEngine({"inspect", folder_ / "bundle", "--json"}, launch_).out, "standard output");
  EXPECT_EQ(json["family"], "llama");
  ASSERT_EQ(json["packages"].size(), 1u);
  const Json& functions = json["packages"][0]["functions"];
  ASSERT_EQ(functions.size(), 2u);
  int convolutions = 0;
  double flops = 0;
  for (const Json& op : functions[0]["ops"]) {
    convolutions += op["op"] == "conv";
    flops += op["flops"].get<double>();
    EXPECT_EQ(op["type"], "fp16");
    EXPECT_EQ(op["shape"].size(), 4u);
    EXPECT_NE(op["verdict"], "VIOLATION");
  }
  EXPECT_EQ(convolutions, 7 + 2);  // a whole layer, and keys and values of the last
  EXPECT_EQ(functions[0]["flops"], flops);
  const std::string text = RunEngine({"inspect", folder_ / "bundle"}, launch_).out;
  for (const char* part : {"prefill_t32_s64", "violations", "memory", "llama model"})
    EXPECT_TRUE(Contains(text, part)) << part;
  EXPECT_FALSE(Contains(text, "softmax")) << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20) << text;
  // The same, and the ops behind it, in columns that keep apart.
  const std::string all = RunEngine({"inspect", folder_ / "bundle", "--ops"}, launch_).out;
  EXPECT_TRUE(all.starts_with(text));
  for (const Json& op : functions[0]["ops"])
    for (const char* key : {"op", "name", "verdict"})
      EXPECT_TRUE(Contains(all, "  " + op[key].get<std::string>() + "  ")) << op;
  EXPECT_TRUE(Contains(ErrorOf(2, {"inspect", kTiny, "--ops"}), "--ops: "));
  const std::string package = folder_ / "bundle/shard_0.mlpackage";
  EXPECT_TRUE(Contains(RunEngine({"inspect", package}, launch_).out, "prefill_t32_s0"));
}

TEST_F(ExportTest, InspectNamesWhatIsAltered) {
  ExportJson({"--chunks", "32", "--history", "0"});
  const std::string weights = folder_ / "bundle/shard_0.mlpackage/Data/com.apple.CoreML/weights/weight.bin";
  std::string bytes = ReadTextFile(weights);
  bytes[bytes.size() / 2] ^= 1;
  WriteFileAtomically(weights, bytes);
  EXPECT_TRUE(Contains(ErrorOf(5, {"inspect", folder_ / "bundle"}), "weight.bin: changed"));
}

TEST_F(ExportTest, RefusesFlagsThatMakeNoSense) {
  const auto error = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"export", kTiny, "-o", folder_ / "none"});
    return ErrorOf(2, flags);
  };
  EXPECT_TRUE(Contains(error({"--weights", "q4"}), "--weights: q4 not in {fp16,int8,lut4}"));
  EXPECT_TRUE(Contains(error({"--attention", "fused"}), "{heads,channels,grouped}"));
  EXPECT_TRUE(Contains(error({"--keys", "cooked"}), "{rotated,raw}"));
  EXPECT_TRUE(Contains(error({"--chunks", "100"}), "chunks: 100 is not a multiple of 32"));
  EXPECT_TRUE(Contains(error({"--chunks", "a"}), "--chunks: 'a'"));
  EXPECT_TRUE(Contains(error({"--history", ""}), "history: give at least one number"));
  EXPECT_TRUE(Contains(error({"--max-shard-mb", "0"}), "max-shard-mb"));
  EXPECT_TRUE(Contains(error({"--check", "none", "--sample", "x"}), "--sample"));
  EXPECT_FALSE(fs::exists(folder_ / "none"));
  EXPECT_TRUE(
      Contains(ErrorOf(3, {"export", kTiny, "-o", folder_ / "none", "--sample", "no/such"}), "no/such"));
  fs::create_directories(folder_ / "photos");
  folder_.Write("photos/cat.jpg", "meow");
  EXPECT_TRUE(Contains(ErrorOf(2, {"export", kTiny, "-o", folder_ / "photos"}), "photos: exists"));
}

TEST_F(ExportTest, RunNamesTheExportCommand) {
  const std::vector<std::string> run = {"run", "-m", kTiny, "--raw", "-p", "Hello", "--prefill", "coreml"};
  EXPECT_TRUE(Contains(ErrorOf(3, run), "run 'pd-engine export " + kTiny + "'"));
  std::vector<std::string> named = run;
  named.insert(named.end(), {"--bundle", folder_ / "nothing"});
  EXPECT_TRUE(Contains(ErrorOf(3, named), "pd-engine export"));
  EXPECT_TRUE(
      Contains(ErrorOf(2, {"run", "-m", kTiny, "-p", "x", "--prefill", "cpu", "--ane", folder_ / "nothing"}),
               "--bundle"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"run", "-m", kTiny, "-p", "x", "--decode", "coreml"}), "only prefills"));
}

TEST_F(ExportTest, RunPrefillsByWhatWasExported) {
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"run", "-m", kTiny, "--raw", "-n", "8", "--json", "-p",
                                 "The quick brown fox jumps over the lazy dog and runs away"});
    const Outcome outcome = RunEngine(flags, launch_);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return ParseJson(outcome.out, "standard output");
  };
  EXPECT_EQ(Export({"--chunks", "32", "--history", "0,64", "-q"}).code, 0);  // to the cache
  const Json alone = run({}), split = run({"--prefill", "coreml"});
  EXPECT_EQ(split["token_ids"], alone["token_ids"]);
  EXPECT_EQ(split["prefill"]["device"], "ane-reference");
  EXPECT_EQ(split["prefill"]["tokens"], alone["prefill"]["tokens"]);
  EXPECT_FALSE(split["prefill"].contains("tail"));

  ExportJson({"--chunks", "32", "--history", "0"});
  const Json cut = run({"--prefill", "coreml", "--ane", folder_ / "bundle"});
  EXPECT_EQ(cut["token_ids"], alone["token_ids"]);
  EXPECT_EQ(cut["prefill"]["tokens"], 32);
  EXPECT_EQ(cut["prefill"]["tail"]["device"], "cpu");
  EXPECT_EQ(cut["prefill"]["tail"]["tokens"], alone["prefill"]["tokens"].get<int>() - 32);

  const Outcome other = RunEngine({"run", "-m", kTiny + ".q4_1.gguf", "--raw", "-p", "x", "--prefill",
                                   "coreml", "--ane", folder_ / "bundle"},
                                  launch_);
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(Contains(other.err, "made from another model (same shape, other weights)")) << other.err;
}

// Killed at any moment: what is at the target is whole, or nothing.
TEST_F(ExportTest, KilledExportsLeaveNoHalfBundle) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 12; ++round) {
    const int signal = round % 3 == 0 ? SIGINT : SIGKILL;
    const auto wait = std::chrono::microseconds(random() % 60'000);
    std::string partial;
    const auto interfere = [&](int pid) {
      partial = folder_ / fmt::format("bundle.partial-{}", pid);
      std::this_thread::sleep_for(wait);
      kill(pid, signal);
    };
    const Outcome outcome =
        RunEngine({"export", kTiny, "-o", folder_ / "bundle", "--weights", "lut4"}, {.on_start = interfere});
    SCOPED_TRACE(fmt::format("signal {} after {} us: {}", signal, wait.count(), outcome.err));
    if (Contains(outcome.err, "interrupted")) {  // Ctrl-C cleans up at once
      EXPECT_EQ(outcome.code, 130);
      EXPECT_FALSE(fs::exists(partial));
    }
    if (!fs::exists(folder_ / "bundle")) continue;
    EXPECT_EQ(RunEngine({"inspect", folder_ / "bundle"}, launch_).code, 0);
  }
  ExportJson({"--weights", "lut4"});
  EXPECT_EQ(RunEngine({"inspect", folder_ / "bundle"}, launch_).code, 0);
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_TRUE(entry.path().filename() == "bundle" || entry.path().filename() == "cache") << entry.path();
}

// Here there is no Neural Engine: the report says so, proves nothing, and holds nothing of its owner.
TEST_F(ExportTest, DoctorExaminesABundle) {
  ExportJson({"--chunks", "32", "--history", "0,64"});
  const std::string report = folder_ / "report";
  const std::vector<std::string> command = {
      "doctor", "--bundle", folder_ / "bundle", "-m", kTiny, "--decode", "cpu", "-o", report};
  const Outcome outcome = RunEngine(command, launch_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"opening the bundle", "opening device cpu", "goldens", "numerics", "speed"})
    EXPECT_TRUE(Contains(outcome.err, std::string(part) + ": done in ")) << part << "\n" << outcome.err;
  for (const char* part :
       {"THIS IS NO NEURAL ENGINE: our interpreter", "0 proved, 0 refuted", "numerics", "report.json"})
    EXPECT_TRUE(Contains(outcome.out, part)) << part << "\n" << outcome.out;
  const auto read = [](const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string json = read(report + ".json");
  EXPECT_EQ(ParseJson(json, "report")["neural_engine"], false);
  EXPECT_TRUE(outcome.out.starts_with(read(report + ".txt")));
  EXPECT_FALSE(Contains(json, fs::path(folder_ / "bundle").parent_path().string()));
  // The planner takes its profile from it.
  const Outcome plan = RunEngine({"plan", "--chip", report + ".json", "--json"}, launch_);
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_TRUE(Contains(plan.out, "ane-reference"));

  EXPECT_TRUE(Contains(ErrorOf(2, {"doctor", "-o", report}), "--bundle"));
  EXPECT_TRUE(Contains(ErrorOf(3, {"doctor", "--ane", folder_ / "absent", "-m", kTiny}), "absent"));
  EXPECT_TRUE(
      Contains(ErrorOf(2, {"doctor", "--ane", folder_ / "bundle", "-m", kTiny, "--decode", "tpu"}), "tpu"));
}

}  // namespace
}  // namespace pd::test
