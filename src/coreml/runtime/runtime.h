// Prefill programs on Core ML: the predictor behind CoreMlPrefill on a Mac. Every failure has a defined
// outcome (failure.h); at worst the decode device computes the prompt.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coreml/device/predictor.h"
#include "coreml/export/bundle.h"
#include "coreml/runtime/compiled_cache.h"
#include "coreml/runtime/core_ml.h"
#include "coreml/runtime/engagement.h"
#include "coreml/runtime/placement.h"
#include "coreml/runtime/trial.h"

namespace pd {

struct RuntimeOptions {
  std::filesystem::path cache_folder;       // of compiled models; empty: each process compiles again
  int64_t cache_bytes = int64_t(20) << 30;  // size limit of the cache
  std::string os_build, machine;            // of this system; empty: detected
  // Functions of a package that stay loaded: each pins its working memory. One runs, one is next.
  int resident_functions = 2;
  PlacementLimits placement;
  EngagementLimits engagement;
  Trial trial;  // nullptr: functions make their first prediction in this process, which they may crash
  CancelCheck cancelled;  // polled while something is compiled, loaded or tried
  // Gets messages for the user, one sentence at a time, each once: a long wait, a disabled function or
  // device, an unwritable cache. Called on the thread that called the predictor.
  std::function<void(const std::string& sentence)> note;
  std::function<double()> milliseconds;  // the clock for measurements; nullptr: a steady clock
};

// The state of one function, for statistics, metrics and `doctor`.
struct FunctionReport {
  std::string package, function;
  std::string disabled;  // not empty: why the function is disabled
  bool compiled_here = false;
  double compile_ms = 0;               // of its package, if compiled by this process
  double load_ms = 0;                  // of the latest load
  std::optional<Placement> placement;  // the plan, if it was read in this process
  std::optional<FunctionVerdict> verdict;
  uint64_t predictions = 0;
};
struct RuntimeReport {
  std::string disabled;  // not empty: why all functions are disabled
  std::vector<FunctionReport> functions;
  // How often each remedy was needed; all 0 in normal operation.
  uint64_t retries = 0, reloads = 0, recompiles = 0, fallbacks = 0;
  uint64_t copies = 0;      // results that were not in the memory offered for them
  uint64_t distrusted = 0;  // results with impossible strides, read as dense
};

class RuntimeShared;

// One for each opened bundle; predictors keep what they need of it alive.
class CoreMlRuntime {
 public:
  CoreMlRuntime(std::shared_ptr<CoreMl> core_ml, Bundle bundle, RuntimeOptions options);

  // A predictor for a package of the bundle, for OpenCoreMlPrefill. Opening compiles the package or finds it
  // compiled; functions are loaded on first use. Throws only kCancelled: a package that does not compile is
  // disabled.
  std::unique_ptr<Predictor> Open(const std::filesystem::path& package) const;
  PredictorFactory Factory() const;

  RuntimeReport Report() const;  // any thread

 private:
  std::shared_ptr<RuntimeShared> shared_;
};

// The system's build and the machine's model, from sysctl; "unknown" where it has none.
std::string SystemBuild();
std::string MachineModel();
// The path of the running program, for a trial by the program itself; empty if the system does not tell.
std::filesystem::path OwnExecutable();

}  // namespace pd
