// Every family's packages before Apple's coremltools.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "coreml/export/export.h"
#include "coreml/package/package.h"
#include "tests/coreml/canonical.h"
#include "tests/coreml/example.h"
#include "tests/coreml/python.h"
#include "tests/coreml/sources.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

// The Hugging Face folders among the golden models: one or more for each family.
std::vector<std::string> GoldenFolders() {
  const std::string list = PD_TEST_DATA "/models/models.json";
  std::vector<std::string> folders;
  for (const Json& entry : ParseJson(ReadTextFile(list), list)) {
    const std::string name = entry["model"].get<std::string>();
    if (fs::is_directory(fs::path(PD_TEST_DATA "/models") / name)) folders.push_back(name);
  }
  return folders;
}

struct Variation {
  const char* name;
  WeightFormat weights;
  mil::LoweringOptions lowering;
  int64_t max_shard_bytes;
};

class Families : public testing::TestWithParam<Variation> {};

// One run of the validator on the packages of all models: starting it costs more than a package.
TEST_P(Families, PackagesAreAccepted) {
  const test::TempFolder folder;
  std::vector<std::string> arguments = {"--ane", "--quiet"};
  size_t sharded = 0;
  for (const std::string& name : GoldenFolders()) {
    ModelSource model = OpenModel(fs::path(PD_TEST_DATA "/models") / name);
    ExportOptions options;
    options.weights = GetParam().weights;
    options.lowering = GetParam().lowering;
    options.max_shard_bytes = GetParam().max_shard_bytes;
    options.chunks = {32, 64};
    options.histories = {0, 64};
    const ExportReport report = ExportBundle(model, folder / name, options, [](const ExportProgress&) {});
    sharded += report.bundle.shards.size() > 1;
    for (const BundleShard& shard : report.bundle.shards)
      arguments.push_back((folder / name / shard.package).string());
  }
  ASSERT_GT(arguments.size(), 12u);
  EXPECT_EQ(sharded > 0, GetParam().max_shard_bytes < 1'000'000);
  const test::Ran ran = test::Validate(arguments);
  EXPECT_EQ(ran.status, 0) << ran.output;
}

INSTANTIATE_TEST_SUITE_P(
    Variations, Families,
    testing::Values(
        Variation{"fp16", WeightFormat::kFp16, {}, 1 << 30},
        Variation{"int8_sharded", WeightFormat::kInt8, {}, 1},
        Variation{"lut4", WeightFormat::kLut4, {}, 1 << 30},
        Variation{"fp16_raw_sharded", WeightFormat::kFp16, {mil::AttentionForm::kHeads, KeyForm::kRaw}, 1},
        Variation{
            "channels", WeightFormat::kFp16, {mil::AttentionForm::kChannels, KeyForm::kRotated}, 1 << 30},
        Variation{
            "grouped_lut4", WeightFormat::kLut4, {mil::AttentionForm::kGrouped, KeyForm::kRotated}, 1 << 30}),
    [](const auto& tested) { return std::string(tested.param.name); });

// What coremltools rebuilds from one of our packages, and saves again its own way, is the program we wrote:
// read back, every op, type, parameter and constant is the same.
TEST(Coremltools, SavesTheProgramThatWeWrote) {
  const test::TempFolder folder;
  ExportOptions options;
  options.chunks = {32};
  options.histories = {64};
  ModelSource model = test::RandomSource(test::MixedSpec());
  for (WeightFormat format : {WeightFormat::kFp16, WeightFormat::kInt8, WeightFormat::kLut4}) {
    options.weights = format;
    ExportBundle(model, folder / Name(format), options, [](const ExportProgress&) {});
    const fs::path ours = folder / Name(format) / "shard_0.mlpackage";
    const fs::path theirs = folder / (std::string(Name(format)) + ".mlpackage");
    const test::Ran ran = test::RunPython("tests/coreml/coremltools_check.py",
                                          {"resave", ours.string(), theirs.string(), "prefill_t32_s64"});
    ASSERT_EQ(ran.status, 0) << ran.output;
    const mil::Function written = ReadPackage(ours).program.functions.at("prefill_t32_s64");
    const mil::Function saved = ReadPackage(theirs).program.functions.at("main");
    EXPECT_EQ(test::Canonical(written), test::Canonical(saved)) << Name(format);
  }
}

}  // namespace
}  // namespace pd
