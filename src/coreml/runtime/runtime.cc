#include "coreml/runtime/runtime.h"

#include <chrono>

#include "base/digest.h"
#include "base/error.h"
#include "coreml/runtime/runtime_predictor.h"
#include "coreml/runtime/shared.h"

namespace pd {

RuntimeShared::RuntimeShared(std::shared_ptr<CoreMl> core_ml, Bundle bundle, RuntimeOptions options)
    : core_ml_(std::move(core_ml)),
      bundle_(std::move(bundle)),
      options_(std::move(options)),
      cache_(options_.cache_folder, options_.cache_bytes) {
  PD_CHECK(core_ml_ && options_.resident_functions >= 1 && options_.engagement.runs >= 1);
  if (options_.os_build.empty()) options_.os_build = SystemBuild();
  if (options_.machine.empty()) options_.machine = MachineModel();
  if (!options_.milliseconds)
    options_.milliseconds = [] {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      return std::chrono::duration<double, std::milli>(now).count();
    };
}

CompiledKey RuntimeShared::KeyOf(const std::string& package) const {
  uint64_t content = 0;
  for (const auto& [name, file] : bundle_.files)
    if (name.starts_with(package + "/"))
      content = Digest(fmt::format("{} {} {:x}", name, file.bytes, file.digest), content);
  return {package, content, options_.os_build, options_.machine};
}

void RuntimeShared::Say(const std::string& sentence) {
  {
    const std::lock_guard guard(mutex_);
    if (!said_.insert(sentence).second) return;
  }
  if (options_.note) options_.note(OneLine(sentence));
}

void RuntimeShared::DisableDevice(const std::string& why) {
  {
    const std::lock_guard guard(mutex_);
    if (!counts_.disabled.empty()) return;
    counts_.disabled = why;
  }
  Say(fmt::format("the Neural Engine is not used: {}", why));
}

std::string RuntimeShared::Disabled() const {
  const std::lock_guard guard(mutex_);
  return counts_.disabled;
}

RuntimeReport RuntimeShared::Report() const {
  const std::lock_guard guard(mutex_);
  RuntimeReport report = counts_;
  for (const auto& [key, function] : functions_) report.functions.push_back(function);
  return report;
}

CoreMlRuntime::CoreMlRuntime(std::shared_ptr<CoreMl> core_ml, Bundle bundle, RuntimeOptions options)
    : shared_(std::make_shared<RuntimeShared>(std::move(core_ml), std::move(bundle), std::move(options))) {}

std::unique_ptr<Predictor> CoreMlRuntime::Open(const std::filesystem::path& package) const {
  return OpenRuntimePredictor(shared_, package);
}

PredictorFactory CoreMlRuntime::Factory() const {
  return [shared = shared_](const std::filesystem::path& package) {
    return OpenRuntimePredictor(shared, package);
  };
}

RuntimeReport CoreMlRuntime::Report() const { return shared_->Report(); }

}  // namespace pd
