// Programs that coremltools wrote, against coremltools' numpy inference or numpy itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/coreml/example.h"
#include "tests/coreml/interpreter/cases.h"
#include "tests/coreml/python.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

// Runs every case of `cases.py KIND`: in plain and in fast forms, on one thread and on three.
void Check(const std::string& kind) {
  const test::TempFolder folder;
  const test::Ran ran = test::RunPython("tests/coreml/interpreter/cases.py", {kind, folder.path().string()});
  ASSERT_EQ(ran.status, 0) << ran.output;
  const test::Cases cases(folder.path(), kind);
  ASSERT_FALSE(cases.runs().empty());
  for (const auto& [threads, plain] : {std::pair{1, true}, {1, false}, {3, false}}) {
    SCOPED_TRACE(fmt::format("{} threads, {} forms", threads, plain ? "plain" : "fast"));
    Interpreter interpreter(ReadPackage(folder / (kind + ".mlpackage")),
                            std::make_shared<ThreadPool>(threads), {plain, 0});
    const ProgramStates states = interpreter.MakeStates();
    for (const test::CaseRun& run : cases.runs()) {
      const OutputTensors outputs = interpreter.Run(run.function, run.inputs, &states);
      EXPECT_EQ(outputs.size(), run.results.size());
      for (const auto& [name, want] : run.results) test::ExpectResult(outputs.at(name), want, name);
    }
  }
}

TEST(Interpreted, OpsAgreeWithNumpy) { Check("ops"); }
TEST(Interpreted, CompressedWeightsAreThoseOfCoremltools) { Check("weights"); }
TEST(Interpreted, OlderCompressedWeightsToo) { Check("weights_ios16"); }
TEST(Interpreted, PrefillProgramsAgreeWithNumpy) { Check("prefill"); }
TEST(Interpreted, ConvertedProgramsToo) { Check("converted"); }
TEST(Interpreted, StatesLastFromRunToRun) { Check("state"); }

}  // namespace
}  // namespace pd
