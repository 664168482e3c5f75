#include "coreml/runtime/status.h"

namespace pd {

const char* Name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kFailed:
      return "failed";
    case Code::kOutOfMemory:
      return "out_of_memory";
    case Code::kNoSpace:
      return "no_space";
    case Code::kStale:
      return "stale";
    case Code::kCrashed:
      return "crashed";
    case Code::kTimedOut:
      return "timed_out";
    case Code::kBadResult:
      return "bad_result";
    case Code::kOffEngine:
      return "off_engine";
    case Code::kCancelled:
      return "cancelled";
  }
  return "?";
}

const char* Name(Stage stage) {
  switch (stage) {
    case Stage::kCompile:
      return "compile";
    case Stage::kLoad:
      return "load";
    case Stage::kPlan:
      return "plan";
    case Stage::kTrial:
      return "trial";
    case Stage::kFirstPredict:
      return "first_predict";
    case Stage::kPredict:
      return "predict";
  }
  return "?";
}

}  // namespace pd
