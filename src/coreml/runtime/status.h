// Results of Core ML calls as values, so that nothing is thrown where Objective-C runs.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

namespace pd {

enum class Code : uint8_t {
  kOk,
  kFailed,       // an unspecific error
  kOutOfMemory,  // out of memory, or of the driver's share of it
  kNoSpace,      // the disk is full, or the folder is not writable
  kStale,        // this system does not load the compiled model: of another version, damaged or missing
  kCrashed,      // the trial process was killed by a signal
  kTimedOut,     // the trial process did not end
  kBadResult,    // a result is missing, has another shape or type, or is not finite
  kOffEngine,    // it works, but not on the Neural Engine
  kCancelled,    // the caller cancelled
};
const char* Name(Code code);  // "failed", "out_of_memory", ...; for JSON

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;  // one line, from Core ML if it gave one; empty when ok
  bool ok() const { return code == Code::kOk; }
  static Status Fail(Code code, std::string message) { return {code, std::move(message)}; }
};

// The stage in a function's life at which something failed.
enum class Stage : uint8_t {
  kCompile,       // the package, to a loadable model
  kLoad,          // one of its functions: on first load the system specialises it for the engine
  kPlan,          // reading where its operations will run
  kTrial,         // its first prediction, in a separate process
  kFirstPredict,  // its first prediction in this process
  kPredict,       // any later one
};
const char* Name(Stage stage);  // "compile", "load", "plan", "trial", "first_predict", "predict"

}  // namespace pd
