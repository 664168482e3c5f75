// What Core ML's calls report: a value, so that nothing is thrown where Objective-C runs.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace pd {

enum class Code : uint8_t {
  kOk,
  kFailed,       // an error that says no more
  kOutOfMemory,  // memory, or what the driver has of it
  kNoSpace,      // the disk is full, or the folder may not be written
  kStale,        // a compiled model that this system does not load: of another version, damaged or gone
  kCrashed,      // the process that tried it was killed by a signal
  kTimedOut,     // the process that tried it did not end
  kBadResult,    // a result is missing, of another shape or type, or no number
  kOffEngine,    // it works, and not on the Neural Engine
  kCancelled,    // the caller asked for it
};
const char* Name(Code code);  // "failed", "out_of_memory", ...; for JSON

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;  // one line, of Core ML where there is one; empty when ok
  bool ok() const { return code == Code::kOk; }
  static Status Fail(Code code, std::string message) { return {code, std::move(message)}; }
};

// Where in the life of a function something went wrong.
enum class Stage : uint8_t {
  kCompile,       // the package, to a model in the form that loads
  kLoad,          // a function of that: the system specialises it for the engine the first time
  kPlan,          // reading where its operations will run
  kTrial,         // its first prediction, in a process of its own
  kFirstPredict,  // its first prediction here
  kPredict,       // any later one
};
const char* Name(Stage stage);  // "compile", "load", "plan", "trial", "first_predict", "predict"

}  // namespace pd
