#include "coreml/runtime/failure.h"

#include <algorithm>

namespace pd {
namespace {

using enum Remedy;

// Compiling may take minutes, so it is repeated at most once. A model that the system refuses to load or that
// kills its process is compiled again before the function is disabled.
constexpr FailureRule kRules[] = {
    {Stage::kCompile, Code::kFailed, {kRetry, kDisableDevice, kDisableDevice}},
    {Stage::kCompile, Code::kOutOfMemory, {kFreeAndRetry, kFallBack, kFallBack}},
    {Stage::kCompile, Code::kNoSpace, {kDisableDevice, kDisableDevice, kDisableDevice}},

    {Stage::kLoad, Code::kFailed, {kRetry, kRecompile, kDisableFunction}},
    {Stage::kLoad, Code::kStale, {kRecompile, kDisableFunction, kDisableFunction}},
    {Stage::kLoad, Code::kOutOfMemory, {kFreeAndRetry, kFallBack, kFallBack}},
    {Stage::kLoad, Code::kNoSpace, {kFallBack, kFallBack, kFallBack}},
    {Stage::kLoad, Code::kBadResult, {kDisableFunction, kDisableFunction, kDisableFunction}},

    // Without a plan, timing alone decides.
    {Stage::kPlan, Code::kFailed, {kIgnore, kIgnore, kIgnore}},
    {Stage::kPlan, Code::kOutOfMemory, {kIgnore, kIgnore, kIgnore}},
    {Stage::kPlan, Code::kStale, {kIgnore, kIgnore, kIgnore}},
    {Stage::kPlan, Code::kOffEngine, {kDisableFunction, kDisableFunction, kDisableFunction}},

    {Stage::kTrial, Code::kCrashed, {kRecompile, kDisableFunction, kDisableFunction}},
    {Stage::kTrial, Code::kTimedOut, {kDisableFunction, kDisableFunction, kDisableFunction}},
    {Stage::kTrial, Code::kFailed, {kRetry, kRecompile, kDisableFunction}},
    {Stage::kTrial, Code::kStale, {kRecompile, kDisableFunction, kDisableFunction}},
    {Stage::kTrial, Code::kBadResult, {kRecompile, kDisableFunction, kDisableFunction}},
    {Stage::kTrial, Code::kOutOfMemory, {kFreeAndRetry, kFallBack, kFallBack}},

    {Stage::kFirstPredict, Code::kFailed, {kRetry, kRecompile, kDisableFunction}},
    {Stage::kFirstPredict, Code::kStale, {kRecompile, kDisableFunction, kDisableFunction}},
    {Stage::kFirstPredict, Code::kBadResult, {kRecompile, kDisableFunction, kDisableFunction}},
    {Stage::kFirstPredict, Code::kOffEngine, {kDisableFunction, kDisableFunction, kDisableFunction}},
    {Stage::kFirstPredict, Code::kOutOfMemory, {kFreeAndRetry, kFallBack, kFallBack}},

    // It worked before: loading it again helps if the system has unloaded it. Wrong results get no second
    // chance.
    {Stage::kPredict, Code::kFailed, {kRetry, kReload, kFallBack}},
    {Stage::kPredict, Code::kStale, {kReload, kRecompile, kFallBack}},
    {Stage::kPredict, Code::kOutOfMemory, {kFreeAndRetry, kFallBack, kFallBack}},
    {Stage::kPredict, Code::kBadResult, {kDisableFunction, kDisableFunction, kDisableFunction}},
};

}  // namespace

std::span<const FailureRule> FailureRules() { return kRules; }

Remedy RemedyFor(Stage stage, Code code, int attempt) {
  if (code == Code::kCancelled) return kCancel;
  const auto rule =
      std::ranges::find_if(kRules, [&](const FailureRule& r) { return r.stage == stage && r.code == code; });
  return rule == std::end(kRules) ? kFallBack : rule->remedies[std::min(attempt, 2)];
}

const char* Name(Remedy remedy) {
  switch (remedy) {
    case kRetry:
      return "retry";
    case kFreeAndRetry:
      return "free_and_retry";
    case kReload:
      return "reload";
    case kRecompile:
      return "recompile";
    case kIgnore:
      return "ignore";
    case kFallBack:
      return "fall_back";
    case kDisableFunction:
      return "disable_function";
    case kDisableDevice:
      return "disable_device";
    case kCancel:
      return "cancel";
  }
  return "?";
}

}  // namespace pd
