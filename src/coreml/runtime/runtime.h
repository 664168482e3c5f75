// Prefill programs on Core ML: the predictor that stands behind CoreMlPrefill on a Mac. Everything that can
// go wrong has a defined end (failure.h); the worst is that the decode device computes the prompt.
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
  std::filesystem::path cache_folder;       // of compiled models; empty: each process compiles anew
  int64_t cache_bytes = int64_t(20) << 30;  // of them all
  std::string os_build, machine;            // of this system; empty: asked for
  // Functions of a package that stay loaded: each pins its working memory. One runs, one is the next.
  int resident_functions = 2;
  PlacementLimits placement;
  EngagementLimits engagement;
  Trial trial;            // nullptr: functions make their first prediction here, at this process's risk
  CancelCheck cancelled;  // looked at while something is compiled, loaded or tried
  // Told what the user should know, a sentence at a time, each once: a wait that begins, a function or the
  // device that was given up, a cache that cannot be written. On the thread that called the predictor.
  std::function<void(const std::string& sentence)> note;
  std::function<double()> milliseconds;  // the clock of measurements; nullptr: a steady one
};

// What became of one function, for statistics, metrics and `doctor`.
struct FunctionReport {
  std::string package, function;
  std::string disabled;  // not empty: why it is not used any more
  bool compiled_here = false;
  double compile_ms = 0;               // of its package, when compiled here
  double load_ms = 0;                  // the last time it was
  std::optional<Placement> placement;  // as planned, when it was looked at in this process
  std::optional<FunctionVerdict> verdict;
  uint64_t predictions = 0;
};
struct RuntimeReport {
  std::string disabled;  // not empty: why no function is used any more
  std::vector<FunctionReport> functions;
  // How often what was needed; all 0 in good health.
  uint64_t retries = 0, reloads = 0, recompiles = 0, fallbacks = 0;
  uint64_t copies = 0;      // results that did not come in the memory offered for them
  uint64_t distrusted = 0;  // results whose strides could not be, and were taken for dense
};

class RuntimeShared;

// One for each opened bundle; predictors keep what they need of it alive.
class CoreMlRuntime {
 public:
  CoreMlRuntime(std::shared_ptr<CoreMl> core_ml, Bundle bundle, RuntimeOptions options);

  // A predictor for a package of the bundle, for OpenCoreMlPrefill. Opening compiles the package or finds it
  // compiled; functions are loaded when they are first wanted. Throws kCancelled only: what does not compile
  // is disabled.
  std::unique_ptr<Predictor> Open(const std::filesystem::path& package) const;
  PredictorFactory Factory() const;

  RuntimeReport Report() const;  // any thread

 private:
  std::shared_ptr<RuntimeShared> shared_;
};

// The build of the running system and the model of the machine, as sysctl tells; "unknown" where it does not.
std::string SystemBuild();
std::string MachineModel();
// The file of the program that runs, for a trial by the program itself; empty when the system does not tell.
std::filesystem::path OwnExecutable();

}  // namespace pd
