#include "doctor/ane_unit.h"

#include "base/cores.h"
#include "base/error.h"
#include "coreml/device/coreml_prefill.h"
#include "coreml/device/interpreted.h"
#include "open/bundle_runtime.h"

namespace pd {

AneUnit::AneUnit(ModelSource& model, const Bundle& bundle, const BundleRuntime& runtime,
                 std::function<void(const std::string&)> note)
    : model_(model),
      bundle_(bundle),
      cancelled_(runtime.cancelled),
      interpreted_(InterpretedPredictors(std::make_shared<ThreadPool>(int(AvailableCores().size())))) {
  const std::shared_ptr<CoreMl> core_ml = SystemCoreMl();
  if (!core_ml) {
    device_ = Reference();
    return;
  }
  stand_in_ = core_ml->HasNeuralEngine() ? "" : "Core ML on a machine without a Neural Engine";
  runtime_.emplace(core_ml, bundle, ToRuntimeOptions(runtime, std::move(note)));
  CoreMlOptions options;
  options.cancelled = cancelled_;
  options.name = "ane";
  options.physical.kind = PhysicalDevice::Kind::kNeuralEngine;
  device_ = OpenCoreMlPrefill(model, bundle, runtime_->Factory(), options);
}

std::unique_ptr<PrefillDevice> AneUnit::Reference() const {
  CoreMlOptions options;
  options.cancelled = cancelled_;
  auto device = OpenCoreMlPrefill(model_, bundle_, interpreted_, std::move(options));
  if (!IsCurrent(bundle_))
    throw Fail(ErrorKind::kBusy, "{}: the bundle was replaced meanwhile; try again", bundle_.path.string());
  return device;
}

std::optional<RuntimeReport> AneUnit::Report() const {
  return runtime_ ? std::optional(runtime_->Report()) : std::nullopt;
}

std::string AneUnit::MachineModel() { return pd::MachineModel(); }
std::string AneUnit::SystemBuild() { return pd::SystemBuild(); }

}  // namespace pd
