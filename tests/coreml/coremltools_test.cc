// Our reader and writer against Apple's coremltools.
#include <gtest/gtest.h>

#include "base/error.h"
#include "coreml/package/package.h"
#include "tests/coreml/example.h"
#include "tests/coreml/python.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

// Packages made by coremltools, once for all tests of the process.
const fs::path& MadeByCoremltools() {
  static const test::TempFolder folder;
  static const test::Ran ran =
      test::RunPython("tests/coreml/coremltools_check.py", {"make", folder.path().string()});
  EXPECT_EQ(ran.status, 0) << ran.output;
  return folder.path();
}

TEST(Coremltools, AcceptsWhatWeWrite) {
  const test::TempFolder folder;
  const fs::path path = folder / "example.mlpackage";
  WritePackage(path, test::MakeExample(path));
  const test::Ran ran = test::Validate({"--ane", path.string()});
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_NE(ran.output.find("t64: 10 ops, 3 conv"), std::string::npos) << ran.output;
}

class FromCoremltools : public testing::TestWithParam<const char*> {};

// Read, written again by us, and compared by protobuf's own equality: not one field differs.
TEST_P(FromCoremltools, SurvivesOurReaderAndWriter) {
  const fs::path theirs = MadeByCoremltools() / GetParam();
  const Package package = ReadPackage(theirs);
  const test::TempFolder folder;
  const fs::path ours = folder / "ours.mlpackage";
  fs::create_directories(ours / "Data/com.apple.CoreML");
  fs::copy(theirs / kWeightsPlace, ours / kWeightsPlace, fs::copy_options::recursive);
  WritePackage(ours, package);
  const test::Ran ran =
      test::RunPython("tests/coreml/coremltools_check.py", {"same", theirs.string(), ours.string()});
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ReadPackage(ours).program, package.program);
}

INSTANTIATE_TEST_SUITE_P(Packages, FromCoremltools,
                         testing::Values("single_0.mlpackage", "single_64.mlpackage", "multi.mlpackage",
                                         "state.mlpackage", "compressed.mlpackage", "mixed.mlpackage"));

TEST(Coremltools, PackagesHaveWhatTheirMakersPutIn) {
  const Package multi = ReadPackage(MadeByCoremltools() / "multi.mlpackage");
  EXPECT_EQ(multi.default_function, "f0");
  EXPECT_EQ(multi.program.functions.size(), 2u);
  const Package state = ReadPackage(MadeByCoremltools() / "state.mlpackage");
  const mil::Function& main = state.program.functions.at("main");
  int states = 0, writes = 0;
  for (const mil::NamedType& input : main.inputs) states += input.state;
  for (const mil::Operation& op : main.body.operations)
    writes += op.type == "write_state" && op.outputs.empty();
  EXPECT_EQ(states, 1);
  EXPECT_EQ(writes, 1);
}

}  // namespace
}  // namespace pd
