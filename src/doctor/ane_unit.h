// The prefill device that `doctor --bundle` examines.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coreml/device/predictor.h"
#include "coreml/export/bundle.h"
#include "coreml/runtime/runtime.h"
#include "device/device.h"
#include "formats/model_source.h"
#include "open/open.h"

namespace pd {

// A bundle's programs on this machine's Core ML, or on our interpreter where there is none. Refers to its
// arguments for as long as it lives; its device is one thread's at a time. runtime.cancelled ends its calls,
// too.
class AneUnit {
 public:
  // Throws what opening a bundle throws. `runtime` and `note` (OpenOptions) are used where there is Core ML.
  AneUnit(ModelSource& model, const Bundle& bundle, const BundleRuntime& runtime,
          std::function<void(const std::string&)> note);

  std::unique_ptr<PrefillDevice> TakeDevice() { return std::move(device_); }  // once
  // The same programs on our interpreter.
  std::unique_ptr<PrefillDevice> Reference() const;
  std::optional<RuntimeReport> Report() const;  // nullopt without Core ML
  // The model of this machine and the build of its system; "unknown" where the system does not tell.
  static std::string MachineModel();
  static std::string SystemBuild();
  // What runs the programs in place of a Neural Engine; empty when one does.
  const std::string& stand_in() const { return stand_in_; }

 private:
  ModelSource& model_;
  const Bundle& bundle_;
  std::function<bool()> cancelled_;
  PredictorFactory interpreted_;
  std::string stand_in_ = "our interpreter";
  std::optional<CoreMlRuntime> runtime_;
  std::unique_ptr<PrefillDevice> device_;
};

}  // namespace pd
