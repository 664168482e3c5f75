// State shared by the predictors of one bundle.
#pragma once
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "coreml/runtime/runtime.h"

namespace pd {

// Used by the predictors' threads and by any thread that wants a report.
class RuntimeShared {
 public:
  RuntimeShared(std::shared_ptr<CoreMl> core_ml, Bundle bundle, RuntimeOptions options);

  CoreMl& core_ml() const { return *core_ml_; }
  const RuntimeOptions& options() const { return options_; }
  const CompiledCache& cache() const { return cache_; }
  const Bundle& bundle() const { return bundle_; }

  CompiledKey KeyOf(const std::string& package) const;
  double Milliseconds() const { return options_.milliseconds(); }

  // Tells the user, unless already told.
  void Say(const std::string& sentence);
  void DisableDevice(const std::string& why);
  std::string Disabled() const;

  // Changes the report's entry of a function, or its counts.
  template <class F>
  void Update(const std::string& package, const std::string& function, F f) {
    const std::lock_guard guard(mutex_);
    FunctionReport& report = functions_[{package, function}];
    report.package = package, report.function = function;
    f(report);
  }
  void Count(uint64_t RuntimeReport::* counter) {
    const std::lock_guard guard(mutex_);
    ++(counts_.*counter);
  }
  RuntimeReport Report() const;

 private:
  std::shared_ptr<CoreMl> core_ml_;
  Bundle bundle_;
  RuntimeOptions options_;
  CompiledCache cache_;
  mutable std::mutex mutex_;
  RuntimeReport counts_;  // without functions
  std::map<std::pair<std::string, std::string>, FunctionReport> functions_;
  std::set<std::string> said_;
};

}  // namespace pd
