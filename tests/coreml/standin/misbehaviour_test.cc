// Everything that can go wrong with Core ML, and how it ends.
#include <cerrno>

#include "tests/coreml/standin/fixture.h"

namespace pd::test {
namespace {

struct Expected {
  bool falls_back = false;  // the decode device computes some or all of the prompt
  int disabled_functions = 0;
  bool device_disabled = false;
  uint64_t retries = 0, reloads = 0, recompiles = 0;
  bool copies = false, distrusts = false;
};
struct Case {
  const char* name;
  bool warm;  // after a prompt that went well
  Call call;
  std::vector<std::pair<int, Fault>> faults;  // by number of the call; 0: every one
  Expected expected;
};
class Misbehaviour : public StandIn {
 protected:
  void EndAsTheTableSays(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.name);
      EndAsTheTableSays(c);
      CheckNothingIsLeft();
    }
  }

 private:
  void EndAsTheTableSays(const Case& c) {
    RuntimeOptions options = Options();
    options.cache_folder = folder_ / c.name;
    notes_.clear();
    if (c.warm) {
      Open(options);
      Say();
      director().Reset();
    }
    for (const auto& [nth, fault] : c.faults) director().On(c.call, nth, fault);
    if (!c.warm) Open(options);
    const RequestStats stats = Say();
    const RuntimeReport report = runtime_->Report();
    const bool gives_up = c.expected.disabled_functions > 0 || c.expected.device_disabled;
    EXPECT_EQ(stats.tail_tokens > 0, c.expected.falls_back) << stats.fallback;
    EXPECT_EQ(stats.prefill_tokens + stats.tail_tokens, kPrompt);
    EXPECT_EQ(DisabledFunctions(), c.expected.disabled_functions);
    EXPECT_EQ(!report.disabled.empty(), c.expected.device_disabled) << report.disabled;
    EXPECT_EQ(report.retries, c.expected.retries);
    EXPECT_EQ(report.reloads, c.expected.reloads);
    EXPECT_EQ(report.recompiles, c.expected.recompiles);
    EXPECT_EQ(report.copies > 0, c.expected.copies);
    EXPECT_EQ(report.distrusted > 0, c.expected.distrusts);
    EXPECT_EQ(Told("not used"), gives_up);
    // Once all is well again, so is the next prompt, by what was not given up.
    director().Reset();
    EXPECT_EQ(Say().tail_tokens > 0, c.expected.falls_back && gives_up);
  }
};

// Cold, a package's first function s0 predicts twice with the engine and twice without before its first
// chunk: calls 1 to 4 of each package, whose first calls come in turn.

TEST_F(Misbehaviour, Compile) {
  EndAsTheTableSays(
      {{"compile_error_always",
        false,
        Call::kCompile,
        {{0, {Kind::kError}}},
        {.falls_back = true, .device_disabled = true, .retries = 1}},
       {"compile_error_once", false, Call::kCompile, {{1, {Kind::kError}}}, {.retries = 1}},
       {"compile_silent_once", false, Call::kCompile, {{1, {Kind::kSilent}}}, {.retries = 1}},
       {"compile_exception_once", false, Call::kCompile, {{1, {Kind::kException}}}, {.retries = 1}},
       {"compile_exception_always",
        false,
        Call::kCompile,
        {{0, {Kind::kException}}},
        {.falls_back = true, .device_disabled = true, .retries = 1}},
       {"compile_no_memory_once", false, Call::kCompile, {{1, {Kind::kNoMemory}}}, {.retries = 1}},
       {"compile_no_memory_for_one_call",
        false,
        Call::kCompile,
        {{1, {Kind::kPosix, ENOMEM}}, {2, {Kind::kPosix, ENOMEM}}},
        {.retries = 1}},
       {"compile_no_space",
        false,
        Call::kCompile,
        {{1, {Kind::kPosix, ENOSPC}}},
        {.falls_back = true, .device_disabled = true}},
       {"compile_no_space_behind",
        false,
        Call::kCompile,
        {{1, {Kind::kBehind, ENOSPC}}},
        {.falls_back = true, .device_disabled = true}},
       {"compile_no_space_cocoa",
        false,
        Call::kCompile,
        {{1, {Kind::kCocoa, 640}}},
        {.falls_back = true, .device_disabled = true}},
       {"compile_read_only",
        false,
        Call::kCompile,
        {{1, {Kind::kCocoa, 642}}},
        {.falls_back = true, .device_disabled = true}},
       {"compile_slow", false, Call::kCompile, {{1, {Kind::kSlow, 120}}}, {}},
       {"compile_hollow_once", false, Call::kCompile, {{1, {Kind::kHollow}}}, {.recompiles = 1}},
       {"compile_hollow_always",
        false,
        Call::kCompile,
        {{0, {Kind::kHollow}}},
        {.falls_back = true, .disabled_functions = 2, .recompiles = 2}}});
}

TEST_F(Misbehaviour, Load) {
  EndAsTheTableSays(
      {{"load_error_once", false, Call::kLoad, {{1, {Kind::kError}}}, {.retries = 1}},
       {"load_error_twice",
        false,
        Call::kLoad,
        {{1, {Kind::kError}}, {2, {Kind::kError}}},
        {.retries = 1, .recompiles = 1}},
       {"load_error_always",
        false,
        Call::kLoad,
        {{0, {Kind::kError}}},
        {.falls_back = true, .disabled_functions = 2, .retries = 2, .recompiles = 2}},
       {"load_stale_once", false, Call::kLoad, {{1, {Kind::kError, kIo}}}, {.recompiles = 1}},
       {"load_gone_once", false, Call::kLoad, {{1, {Kind::kBehind, ENOENT}}}, {.recompiles = 1}},
       {"load_corrupt_always",
        false,
        Call::kLoad,
        {{0, {Kind::kCocoa, 259}}},
        {.falls_back = true, .disabled_functions = 2, .recompiles = 2}},
       {"load_no_memory_once", false, Call::kLoad, {{1, {Kind::kPosix, ENOMEM}}}, {.retries = 1}},
       {"load_no_memory",
        false,
        Call::kLoad,
        {{0, {Kind::kPosix, ENOMEM}}},
        {.falls_back = true, .retries = 1}},
       {"load_no_space", false, Call::kLoad, {{0, {Kind::kPosix, ENOSPC}}}, {.falls_back = true}},
       {"load_silent_once", false, Call::kLoad, {{1, {Kind::kSilent}}}, {.retries = 1}},
       {"load_exception_once", false, Call::kLoad, {{1, {Kind::kException}}}, {.retries = 1}},
       // The second load of a package is for the processor alone: without it nothing is measured.
       {"load_for_comparison_fails", false, Call::kLoad, {{2, {Kind::kError}}}, {}}});
}

TEST_F(Misbehaviour, Plan) {
  EndAsTheTableSays({{"plan_nil", false, Call::kPlan, {{0, {Kind::kSilent}}}, {}},
                     {"plan_error", false, Call::kPlan, {{0, {Kind::kError}}}, {}},
                     {"plan_exception", false, Call::kPlan, {{0, {Kind::kException}}}, {}},
                     {"plan_no_program", false, Call::kPlan, {{0, {Kind::kNoProgram}}}, {}},
                     {"plan_without_the_function", false, Call::kPlan, {{0, {Kind::kNoFunctions}}}, {}},
                     {"plan_without_costs", false, Call::kPlan, {{0, {Kind::kNoCosts}}}, {}},
                     {"plan_one_on_cpu", false, Call::kPlan, {{0, {Kind::kOnCpu, 30}}}, {}},
                     {"plan_all_on_cpu",
                      false,
                      Call::kPlan,
                      {{0, {Kind::kOnCpu, 1}}},
                      {.falls_back = true, .disabled_functions = 2}},
                     {"plan_half_on_gpu",
                      false,
                      Call::kPlan,
                      {{0, {Kind::kOnGpu, 2}}},
                      {.falls_back = true, .disabled_functions = 2}},
                     {"plan_of_one_function_on_cpu",
                      false,
                      Call::kPlan,
                      {{1, {Kind::kOnCpu, 1}}},
                      {.disabled_functions = 1}},
                     {"plan_without_operations",
                      false,
                      Call::kPlan,
                      {{0, {Kind::kNoOperations}}},
                      {.falls_back = true, .disabled_functions = 2}},
                     {"plan_without_devices",
                      false,
                      Call::kPlan,
                      {{0, {Kind::kNoUsage}}},
                      {.falls_back = true, .disabled_functions = 2}}});
}

TEST_F(Misbehaviour, FirstPrediction) {
  EndAsTheTableSays(
      {{"first_predict_error_once", false, Call::kPredict, {{1, {Kind::kError}}}, {.retries = 1}},
       {"first_predict_error_always",
        false,
        Call::kPredict,
        {{0, {Kind::kError}}},
        {.falls_back = true, .disabled_functions = 2, .retries = 2, .recompiles = 2}},
       {"first_predict_stale_once", false, Call::kPredict, {{1, {Kind::kError, kIo}}}, {.recompiles = 1}},
       {"first_predict_bad_always",
        false,
        Call::kPredict,
        {{0, {Kind::kWrongShape}}},
        {.falls_back = true, .disabled_functions = 2, .recompiles = 2, .copies = true}}});
}

TEST_F(Misbehaviour, LaterPrediction) {
  EndAsTheTableSays(
      {{"predict_error_once", true, Call::kPredict, {{1, {Kind::kError}}}, {.retries = 1}},
       {"predict_error_in_the_second_package", true, Call::kPredict, {{2, {Kind::kError}}}, {.retries = 1}},
       {"predict_error_twice",
        true,
        Call::kPredict,
        {{3, {Kind::kError}}, {4, {Kind::kError}}},
        {.retries = 1, .reloads = 1}},
       {"predict_error_three_times",
        true,
        Call::kPredict,
        {{3, {Kind::kError}}, {4, {Kind::kError}}, {5, {Kind::kError}}},
        {.falls_back = true, .retries = 1, .reloads = 1}},
       {"predict_error_always",
        true,
        Call::kPredict,
        {{0, {Kind::kError}}},
        {.falls_back = true, .retries = 1, .reloads = 1}},
       {"predict_stale_once", true, Call::kPredict, {{1, {Kind::kError, kIo}}}, {.reloads = 1}},
       {"predict_evicted",
        true,
        Call::kPredict,
        {{1, {Kind::kBehind, ENOENT}}, {2, {Kind::kBehind, ENOENT}}},
        {.reloads = 1, .recompiles = 1}},
       {"predict_no_memory_once", true, Call::kPredict, {{1, {Kind::kPosix, ENOMEM}}}, {.retries = 1}},
       {"predict_no_memory",
        true,
        Call::kPredict,
        {{0, {Kind::kNoMemory}}},
        {.falls_back = true, .retries = 1}},
       {"predict_silent_once", true, Call::kPredict, {{1, {Kind::kSilent}}}, {.retries = 1}},
       {"predict_exception_once", true, Call::kPredict, {{1, {Kind::kException}}}, {.retries = 1}},
       {"predict_slow", true, Call::kPredict, {{1, {Kind::kSlow, 30}}}, {}}});
}

TEST_F(Misbehaviour, Strides) {
  EndAsTheTableSays(
      {{"strides_zero",
        true,
        Call::kPredict,
        {{0, {Kind::kZeroStrides}}},
        {.copies = true, .distrusts = true}},
       {"strides_zero_and_padded",
        true,
        Call::kPredict,
        {{1, {Kind::kPaddedZeroStrides}}},
        {.disabled_functions = 1, .copies = true, .distrusts = true}},
       {"strides_padded", true, Call::kPredict, {{0, {Kind::kPaddedStrides}}}, {.copies = true}},
       {"strides_negative",
        true,
        Call::kPredict,
        {{0, {Kind::kNegativeStrides}}},
        {.copies = true, .distrusts = true}},
       {"strides_overlapping",
        true,
        Call::kPredict,
        {{0, {Kind::kOverlappingStrides}}},
        {.copies = true, .distrusts = true}},
       {"strides_huge",
        true,
        Call::kPredict,
        {{0, {Kind::kHugeStrides}}},
        {.copies = true, .distrusts = true}},
       {"strides_missing",
        true,
        Call::kPredict,
        {{0, {Kind::kFewStrides}}},
        {.copies = true, .distrusts = true}}});
}

TEST_F(Misbehaviour, Results) {
  EndAsTheTableSays(
      {{"backing_ignored", true, Call::kPredict, {{0, {Kind::kIgnoreBacking}}}, {.copies = true}},
       {"backing_ignored_for_one", true, Call::kPredict, {{0, {Kind::kIgnoreOne}}}, {.copies = true}},
       {"backing_unwritten", true, Call::kPredict, {{2, {Kind::kUnwritten}}}, {.disabled_functions = 2}},
       {"backing_half_written", true, Call::kPredict, {{2, {Kind::kHalfWritten}}}, {.disabled_functions = 2}},
       {"result_of_another_shape",
        true,
        Call::kPredict,
        {{1, {Kind::kWrongShape}}},
        {.disabled_functions = 1, .copies = true}},
       {"result_transposed",
        true,
        Call::kPredict,
        {{1, {Kind::kTransposedShape}}},
        {.disabled_functions = 1, .copies = true}},
       {"result_of_floats",
        true,
        Call::kPredict,
        {{1, {Kind::kWrongType}}},
        {.disabled_functions = 1, .copies = true}},
       {"result_missing", true, Call::kPredict, {{1, {Kind::kMissing}}}, {.disabled_functions = 1}},
       {"result_not_a_number",
        true,
        Call::kPredict,
        {{2, {Kind::kNotANumber}}},
        {.disabled_functions = 2, .copies = true}},
       {"result_too_many", true, Call::kPredict, {{0, {Kind::kExtra}}}, {}}});
}

TEST_F(Misbehaviour, Buffers) {
  EndAsTheTableSays(
      {{"no_surfaces", false, Call::kSurface, {{0, {Kind::kError}}}, {.copies = true}},
       {"some_surfaces", false, Call::kSurface, {{2, {Kind::kError}}}, {.copies = true}},
       {"surfaces_with_strange_strides",
        false,
        Call::kSurface,
        {{0, {Kind::kStrangeStrides}}},
        {.copies = true}},
       {"surfaces_that_cannot_be_written", false, Call::kLock, {{0, {Kind::kError}}}, {.copies = true}}});
}

}  // namespace
}  // namespace pd::test
