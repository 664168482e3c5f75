// `doctor --bundle`'s examination over our interpreter, which proves nothing and must say so, and over
// devices and reports that are wrong in one way each.
#include "doctor/ane_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "coreml/device/coreml_prefill.h"
#include "coreml/device/interpreted.h"
#include "coreml/export/export.h"
#include "doctor/kv_golden.h"
#include "doctor/unproven.h"
#include "open/open.h"
#include "tests/coreml/example.h"
#include "tests/expect_error.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

std::vector<TokenId> SomeText(int count, int vocab) {
  std::vector<TokenId> text(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) text[size_t(i)] = TokenId((i * 7 + 3) % vocab);
  return text;
}

// Multiplies what another predictor gives as keys and values.
class Wrong final : public Predictor {
 public:
  Wrong(std::unique_ptr<Predictor> right, float factor) : right_(std::move(right)), factor_(factor) {}
  std::vector<std::string> Inputs(const std::string& function) override { return right_->Inputs(function); }
  HalfTensors Predict(const std::string& function, const HalfTensors& inputs,
                      PredictorState* state) override {
    HalfTensors outputs = right_->Predict(function, inputs, state);
    for (auto& [name, tensor] : outputs) {
      if (name == mil::kHiddenOut) continue;
      int64_t count = 1;
      for (const int64_t d : tensor.shape) count *= d;
      auto halves = std::make_shared<std::vector<F16>>(tensor.data, tensor.data + count);
      for (F16& half : *halves) half = ToF16(ToFloat(half) * factor_);
      tensor.data = halves->data();
      tensor.owner = halves;
    }
    return outputs;
  }
  std::unique_ptr<PredictorState> NewState(const std::string& function) override {
    return right_->NewState(function);
  }

 private:
  std::unique_ptr<Predictor> right_;
  float factor_;
};

class AneTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = OpenModel(PD_TEST_DATA "/models/llama-base");
    ExportOptions options;
    options.chunks = {32, 64};
    options.histories = {0, 128};
    bundle_ = ExportBundle(model_, folder_ / "bundle", options, [](const ExportProgress&) {}).bundle;
    subject_.spec = &model_.spec;
    subject_.bundle = &bundle_;
    subject_.stand_in = "our interpreter";
    subject_.text = SomeText(200, model_.spec.vocab);
    subject_.reference = [this] { return Unit(1); };
    subject_.goldens = folder_ / "goldens";
    subject_.version = "0", subject_.machine = "here", subject_.os_build = "1";
  }

  std::unique_ptr<PrefillDevice> Unit(float factor) {
    const PredictorFactory interpreted = InterpretedPredictors(pool_);
    const PredictorFactory open = [=](const std::filesystem::path& package) -> std::unique_ptr<Predictor> {
      return std::make_unique<Wrong>(interpreted(package), factor);
    };
    CoreMlOptions options;
    options.physical.kind = PhysicalDevice::Kind::kNeuralEngine;
    return OpenCoreMlPrefill(model_, bundle_, open, options);
  }

  AneReport Run(float factor = 1) {
    CalibrationDevices devices;
    devices.units.push_back(Unit(factor));
    devices.decode = OpenDevice(model_, "cpu", {.threads = 1});
    return Examine(subject_, std::move(devices), [](const AneProgress&) {});
  }
  static const AneCheck& Of(const AneReport& report, std::string_view name) {
    return report.checks[size_t(&FindClaim(name) - Claims().data())];
  }

  test::TempFolder folder_;
  std::shared_ptr<ThreadPool> pool_ = std::make_shared<ThreadPool>(1);
  ModelSource model_;
  Bundle bundle_;
  AneSubject subject_;
};

TEST_F(AneTest, AnInterpreterProvesNothingAndSaysSo) {
  const AneReport report = Run();
  ASSERT_EQ(report.checks.size(), Claims().size());
  for (size_t i = 0; i < report.checks.size(); ++i) {
    const AneCheck& check = report.checks[i];
    EXPECT_EQ(check.claim, Claims()[i].number);
    EXPECT_NE(check.outcome, Outcome::kProved) << check.name;
    EXPECT_FALSE(check.reason.empty()) << check.name;
  }
  const AneCheck& numerics = Of(report, "numerics");
  EXPECT_EQ(numerics.outcome, Outcome::kNotRun);
  EXPECT_NE(numerics.reason.find("of our interpreter, which is no Neural Engine"), std::string::npos);
  ASSERT_EQ(numerics.numbers["prompts"].size(), 3u);  // 32, 64, and 80: past tokens
  EXPECT_GT(numerics.numbers["prompts"][2]["least_cosine"], 0.999999);
  EXPECT_EQ(numerics.numbers["prompts"][2]["finite"], true);

  const Json json = ToJson(report);
  EXPECT_EQ(json["neural_engine"], false);
  EXPECT_EQ(json["stand_in"], "our interpreter");
  EXPECT_EQ(json["checks"].size(), Claims().size());
  // The planner reads its profile from the same file.
  const MachineCosts costs = ReadMachineCosts(json["profile"], "report");
  EXPECT_EQ(costs.machine, "here");
  EXPECT_EQ(costs.units.size(), 1u);
  const std::string text = ToText(report);
  EXPECT_NE(text.find("THIS IS NO NEURAL ENGINE"), std::string::npos);
  EXPECT_NE(text.find("\n0 proved, "), std::string::npos) << text;
}

TEST_F(AneTest, WrongKeysAndValuesAreRefuted) {
  subject_.stand_in.clear();
  EXPECT_EQ(Of(Run(), "numerics").outcome, Outcome::kProved);
  const AneReport report = Run(1.02f);  // of the right direction, and two percent too large
  EXPECT_EQ(Of(report, "numerics").outcome, Outcome::kRefuted);
  EXPECT_NE(Of(report, "numerics").reason.find("64 tokens"), std::string::npos);
  const AneReport overflown = Run(1e9f);
  EXPECT_EQ(Of(overflown, "numerics").outcome, Outcome::kRefuted);
  EXPECT_NE(Of(overflown, "numerics").reason.find("not finite numbers"), std::string::npos)
      << Of(overflown, "numerics").reason;
  ASSERT_EQ(Of(overflown, "numerics").numbers["prompts"].size(), 3u);  // each was tried
  for (const Json& prompt : Of(overflown, "numerics").numbers["prompts"]) {
    EXPECT_EQ(prompt["finite"], false);
    EXPECT_NE(prompt["why"].get<std::string>().find("'new_k_0'"), std::string::npos) << prompt;
  }
  subject_.stand_in = "our interpreter";  // a stand-in proves nothing, and can still be wrong
  EXPECT_EQ(Of(Run(0), "numerics").outcome, Outcome::kRefuted);
}

TEST_F(AneTest, GoldensAreKeptAndMadeAnewForAnotherBundle) {
  Run();
  const KvGoldens kept = ReadGoldens(subject_.goldens, model_.spec);
  EXPECT_EQ(kept.bundle, BundleDigest(bundle_));
  EXPECT_EQ(kept.text, subject_.text);
  subject_.reference = []() -> std::unique_ptr<PrefillDevice> {
    throw Fail(ErrorKind::kDevice, "not wanted");
  };
  EXPECT_EQ(Of(Run(), "numerics").outcome, Outcome::kNotRun);  // from the file
  subject_.text[0] += 1;
  const AneReport report = Run();  // without goldens nothing is said of the device
  EXPECT_EQ(Of(report, "numerics").outcome, Outcome::kNotRun);
  EXPECT_EQ(Of(report, "numerics").reason, "not wanted");
}

TEST_F(AneTest, DamagedGoldensAreRefused) {
  Run();
  const std::string whole = [&] {
    std::ifstream in(subject_.goldens, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  const auto expect = [&](const std::string& bytes, const std::string& why) {
    std::ofstream(subject_.goldens, std::ios::binary) << bytes;
    test::ExpectError(ErrorKind::kCorruptFile, {"goldens", why},
                      [&] { ReadGoldens(subject_.goldens, model_.spec); });
  };
  expect("", "does not begin");
  expect(whole.substr(0, whole.size() - 1), "cut off");
  expect(whole + "x", "too long");
  std::string other = whole;
  other.replace(other.find("\"goldens\":1"), 11, "\"goldens\":2");
  expect(other, "another version");
}

TEST(GoldenLengths, NeedEveryChunkAndBucket) {
  const std::vector<mil::PrefillShape> functions = {{128, 0},    {512, 0},    {128, 1024},
                                                    {512, 1024}, {128, 4096}, {512, 4096}};
  EXPECT_EQ(GoldenLengths(functions, 8192), (std::vector{128, 512, 576, 1600}));
  EXPECT_EQ(GoldenLengths(functions, 1300), (std::vector{128, 512, 576, 1216}));
  EXPECT_EQ(GoldenLengths(functions, 512), (std::vector{128, 192, 512}));
  EXPECT_TRUE(GoldenLengths(functions, 100).empty());
}

// Times that no Neural Engine can reach are not printed, and make no profile: here those of a small model,
// said to be of a large one.
TEST_F(AneTest, ImpossibleTimesAreNotShown) {
  ModelSpec large = model_.spec;
  for (LayerSpec& layer : large.layers) MlpOf(layer).hidden = 10'000'000;
  subject_.spec = &large;
  subject_.stand_in.clear();
  const AneReport report = Run();
  EXPECT_FALSE(report.costs);
  for (const char* name : {"prefill_speed", "overlap", "handoff", "gpu_speed"}) {
    EXPECT_EQ(Of(report, name).outcome, Outcome::kNotRun) << name;
    EXPECT_NE(Of(report, name).reason.find("cannot be true"), std::string::npos) << Of(report, name).reason;
    EXPECT_TRUE(Of(report, name).numbers.empty()) << name;
  }
}

// What the runtime reports becomes verdicts only where a Neural Engine ran.
TEST_F(AneTest, TheRuntimesReportIsJudged) {
  RuntimeReport runtime;
  FunctionReport function;
  function.package = "shard_0", function.function = "prefill_t32_s0";
  function.compiled_here = true, function.compile_ms = 2000, function.load_ms = 500;
  function.placement = Placement{};
  function.placement->Add({"ios18.conv", "y", "neural_engine", 0.9});
  function.verdict.emplace().engagement = Engagement{Engagement::Verdict::kEngaged, 2, 10};
  runtime.functions = {function};
  subject_.runtime = [&] { return std::optional(runtime); };
  subject_.stand_in.clear();
  AneReport report = Run();
  for (const char* name : {"compile", "compile_time", "placement", "engagement", "shard_size"})
    EXPECT_EQ(Of(report, name).outcome, Outcome::kProved) << name << ": " << Of(report, name).reason;
  EXPECT_EQ(Of(report, "weight_format").outcome, Outcome::kNotRun);  // fp16

  runtime.functions[0].placement->Add({"ios18.softmax", "z", "cpu", 0.1});
  runtime.functions[0].verdict->engagement->verdict = Engagement::Verdict::kNotEngaged;
  runtime.functions[0].compile_ms = 3600e3;
  FunctionReport broken;
  broken.package = "shard_1", broken.function = "f", broken.disabled = "it crashed";
  runtime.functions.push_back(broken);
  report = Run();
  for (const char* name : {"compile", "compile_time", "placement", "engagement", "shard_size"})
    EXPECT_EQ(Of(report, name).outcome, Outcome::kRefuted) << name;
  EXPECT_EQ(Of(report, "placement").numbers["functions"][0]["elsewhere"]["ios18.softmax on cpu"], 1);
  EXPECT_NE(Of(report, "compile").reason.find("shard_1/f: it crashed"), std::string::npos);

  subject_.stand_in = "a stand-in";
  runtime.functions = {function};
  EXPECT_EQ(Of(Run(), "placement").outcome, Outcome::kNotRun);
}

}  // namespace
}  // namespace pd
