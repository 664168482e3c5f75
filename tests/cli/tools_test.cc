// inspect, tokenize, logits and version with the real program.
#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "formats/model_source.h"
#include "formats/safetensors.h"
#include "tests/cli/process.h"
#include "tests/cli/temp_folder.h"
#include "tests/error_table.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";
const std::string kTinyGguf = PD_TEST_DATA "/models/llama-base.q4_1.gguf";

std::string OutputOf(const std::vector<std::string>& arguments, const Launch& launch = {}) {
  const Outcome outcome = RunEngine(arguments, launch);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

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
  for (const char* word : {"run", "inspect", "export", "tokenize", "logits", "version", "exit codes", "130"})
    EXPECT_NE(help.find(word), std::string::npos) << word;
  const std::string run = OutputOf({"run", "--help"});
  for (const char* word :
       {"--prefill", "--decode", "--prefill-chunk", "--temp", "--max-tokens", "--raw", "--json"})
    EXPECT_NE(run.find(word), std::string::npos) << word;
}

TEST(Version, NamesDevices) {
  EXPECT_EQ(OutputOf({"version"}), "pd-engine 0.1.0 (devices: cpu, reference, coreml)\n");
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
