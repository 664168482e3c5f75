// inspect, tokenize, logits and version with the real program.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "cpu/level.h"
#include "formats/model_source.h"
#include "formats/safetensors.h"
#include "open/open.h"
#include "tests/cli/process.h"
#include "tests/error_table.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";
const std::string kTinyGguf = PD_TEST_DATA "/models/llama-base.q4_1.gguf";

template <class T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.name != name) continue;
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  ADD_FAILURE() << name << " is not there";
  return {};
}

TEST(Help, NamesCommandsFlagsAndExitCodes) {
  const std::string help = OutputOf({"--help"});
  for (const char* word : {"run", "batch", "inspect", "export", "plan", "simulate", "calibrate", "bench",
                           "tokenize", "doctor", "logits", "version", "exit codes", "130"})
    EXPECT_NE(help.find(word), std::string::npos) << word;
  const std::string run = OutputOf({"run", "--help"});
  for (const char* word :
       {"--prefill", "--decode", "--prefill-chunk", "--temp", "--max-tokens", "--raw", "--json"})
    EXPECT_NE(run.find(word), std::string::npos) << word;
}

TEST(Version, NamesDevices) {
  EXPECT_EQ(OutputOf({"version"}),
            fmt::format("pd-engine 0.1.0 (devices: {})\n", fmt::join(PrefillDeviceNames(), ", ")));
}

// What `doctor --json` finds, by subject; a finding that is not fine has a remedy.
std::map<std::string, Json> Diagnose(int code, const std::filesystem::path& cache) {
  const Outcome outcome =
      RunEngine({"doctor", "--json"}, {.environment = {"PD_ENGINE_CACHE=" + cache.string()}});
  EXPECT_EQ(outcome.code, code) << outcome.out;
  const Json json = ParseJson(outcome.out, "standard output");
  std::map<std::string, Json> findings;
  for (const Json& finding : json["findings"]) {
    EXPECT_EQ(finding["state"] != "ok", finding["remedy"].is_string()) << finding;
    findings[finding["subject"]] = finding;
  }
  return findings;
}

TEST(Doctor, NamesDevicesAndWhatIsMissing) {
  const TempFolder cache;
  std::filesystem::permissions(cache.path(), std::filesystem::perms::owner_all);
  const auto findings = Diagnose(0, cache.path());
  EXPECT_EQ(findings.at("pd-engine")["value"], "0.1.0");
  EXPECT_EQ(findings.at("cpu")["state"],
            std::string(cpu::Name(cpu::BestLevel())) == "scalar" ? "note" : "ok");
  EXPECT_EQ(findings.at("default model")["state"], "note");
  const auto names = DeviceNames();
  const bool has_mlx = std::ranges::count(names, "mlx") == 1;
  EXPECT_NE(findings.at("mlx")["value"].get<std::string>().find(has_mlx ? "MLX 0.32.4" : "not in this build"),
            std::string::npos);
  // Whose energy is known differs; that nobody's is, is said.
  const bool metered = findings.contains("CPU energy") || findings.contains("GPU energy");
  EXPECT_NE(metered, findings.contains("energy"));
  const std::string text =
      OutputOf({"doctor"}, {.environment = {"PD_ENGINE_CACHE=" + cache.path().string()}});
  EXPECT_EQ(std::ranges::count(text, '\n'), std::ptrdiff_t(findings.size()));
}

// Others could put code there that we would run.
TEST(Doctor, ACacheThatOthersMayWriteToIsAProblem) {
  const TempFolder cache;
  std::filesystem::permissions(cache.path(), std::filesystem::perms::all);
  const Json finding = Diagnose(7, cache.path()).at("models and caches");
  EXPECT_EQ(finding["state"], "problem");
  EXPECT_EQ(finding["remedy"], "others may write to it; run: chmod go-w " + cache.path().string());
}

TEST(Run, SaysWhatQuantisingAtLoadDid) {
  const auto names = DeviceNames();
  if (std::ranges::count(names, "mlx") == 0) GTEST_SKIP() << "this build has no MLX";
  const Outcome outcome = RunEngine({"run", "-m", kTiny, "--raw", "-p", "Hello", "-n", "2", "--prefill",
                                     "mlx", "--decode", "mlx", "--quantize", "q4"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("matrices are quantised to 4 bits, as requested"), std::string::npos)
      << outcome.err;
}

TEST(Inspect, CountsWhatTheFilesHold) {
  const Json json = ParseJson(OutputOf({"inspect", kTiny, "--json"}), "standard output");
  EXPECT_EQ(json["family"], "llama");
  // Embedding and head; in each of two layers q and o, k and v, three of the MLP and two gains; the last
  // gain.
  const int64_t width = 64, kv = 32, hidden = 96, vocab = 320;
  const int64_t parameters =
      2 * vocab * width + 2 * (2 * width * width + 2 * kv * width + 3 * hidden * width + 2 * width) + width;
  EXPECT_EQ(json["parameters"], parameters);
  EXPECT_EQ(
      json["tensors"],
      Json::array({{{"type", "f16"}, {"count", 21}, {"values", parameters}, {"bytes", 2 * parameters}}}));
  EXPECT_EQ(json["spec"]["layers"].size(), 2u);
  EXPECT_EQ(json["memory"]["cpu"]["kv_per_token"], 2 * 2 * kv * 2);
  // The last token of a full context: every matrix once, and attention over 512 keys in two layers.
  const int64_t matrices = vocab * width + 2 * (2 * width * width + 2 * kv * width + 3 * hidden * width);
  EXPECT_EQ(json["flops_per_token"]["decode_full_context"], double(2 * matrices + 2 * 4 * width * 512));
  EXPECT_NE(OutputOf({"inspect", kTinyGguf}).find("q4_1"), std::string::npos);
}

TEST(Tokenize, GoesThereAndBack) {
  const std::string text = "Zwölf Boxkämpfer\n jagen 123 🦊 <|im_end|>";
  const Json json = ParseJson(OutputOf({"tokenize", "-m", kTiny, "-p", text, "--json"}), "standard output");
  EXPECT_EQ(json["text"], text);
  EXPECT_EQ(json["ids"].back(), 2);
  EXPECT_EQ(json["pieces"].size(), json["ids"].size());
  std::string ids;
  for (const Json& id : json["ids"]) ids += id.dump() + ",";
  EXPECT_EQ(OutputOf({"tokenize", "-m", kTiny, "--ids", ids}), text + "\n");
  const Json plain =
      ParseJson(OutputOf({"tokenize", "-m", kTiny, "-p", text, "--plain", "--json"}), "standard output");
  EXPECT_GT(plain["ids"].size(), json["ids"].size());
  EXPECT_EQ(OutputOf({"tokenize", "-m", kTiny}, {.input = "1"}),
            OutputOf({"tokenize", "-m", kTiny, "-p", "1"}));
}

TEST(Logits, EqualTransformers) {
  const TempFolder folder;
  const auto golden = SafetensorsFile::Open(kTiny + "/golden.safetensors");
  const auto ids = Values<int32_t>(*golden, "prompt.0.ids");
  const auto expected = Values<float>(*golden, "prompt.0.logits");
  std::string list;
  for (int32_t id : ids) list += std::to_string(id) + "\n";
  const std::string file = folder.Write("ids.txt", list), output = folder / "logits.safetensors";
  for (const auto& [device, row] : {std::pair("reference", "reference"), std::pair("cpu", "cpu_16bit")}) {
    std::vector<float> first;
    for (const char* chunk : {"512", "7", "1"}) {
      EXPECT_EQ(
          OutputOf({"logits", "-m", kTiny, "-i", file, "-o", output, "--device", device, "--chunk", chunk}),
          "");
      const auto written = SafetensorsFile::Open(output);
      ASSERT_EQ(written->tensors().size(), 1u);
      EXPECT_EQ(written->tensors()[0].shape, (std::vector<int64_t>{int64_t(ids.size()), 320}));
      const auto logits = Values<float>(*written, "logits");
      ASSERT_EQ(logits.size(), expected.size());
      EXPECT_LE(RelativeError(logits, expected), LogitError(row)) << device << " in chunks of " << chunk;
      if (first.empty()) first = logits;
      EXPECT_EQ(logits, first) << device << ": the chunk size shows";
    }
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2)
      << "a partial file is left";
}

}  // namespace
}  // namespace pd::test
