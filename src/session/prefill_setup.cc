#include "session/prefill_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/cores.h"
#include "base/digest.h"
#include "base/files.h"
#include "base/json.h"
#include "planning/bandwidth.h"
#include "planning/planner.h"
#include "session/bundles.h"
#include "session/family_files.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProfiles = "profiles";

std::string Fingerprint(const DeviceSettings& settings) {
  return fmt::format("version {}|{}|decode {}|{}|bits {}", kMachineCostsVersion, MachineName(settings),
                     settings.decode, BuildVariant(), settings.quantise_bits);
}

bool HasBundle(const DeviceSettings& settings, ModelSource& model) {
  return FindBundle(settings.bundle, settings.cache, model).has_value();
}

// A device of its own reads prompts, unless it is the one that decodes, with the same processors.
PrefillSetup Only(const std::string& name, const DeviceSettings& settings) {
  if (name == settings.decode && !DividesCores(settings)) return {};
  return {.names = {name}};
}

PrefillSetup Uncalibrated(const DeviceSettings& settings, ModelSource& model) {
  const std::string& name = settings.bundle.empty() ? settings.decode : BundleDevice();
  PrefillSetup setup = Only(name, settings);
  std::string why;  // empty where there is no other device to choose
  if (!PrefillCandidates(settings, model).empty())
    why = fmt::format(
        "{}: not calibrated, so it was not compared with others; 'pd-engine calibrate' measures them", name);
  setup.choose = [why, unit = setup.names.empty() ? std::nullopt : std::optional<size_t>(0)](
                     const PrefillQuestion& question) { return PrefillChoice{unit, question.chunk, why}; };
  return setup;
}

}  // namespace

std::vector<std::string> PrefillCandidates(const DeviceSettings& settings, ModelSource& model) {
  std::vector<std::string> names;
  for (const BackendInfo& backend : Backends()) {
    if (!backend.prefills || !backend.useful) continue;
    if (backend.needs_bundle
            ? !HasBundle(settings, model)
            : backend.name == settings.decode && !(backend.divides_cores && DividesCores(settings)))
      continue;
    names.push_back(backend.name);
  }
  return names;
}

std::string MachineName(const DeviceSettings& settings) {
  const int processors = int(AvailableCores().size());
  std::string name = fmt::format("{}, {} processors", ProcessorName(), processors);
  if (DividesCores(settings)) {
    const auto own = [&](int threads, int other) { return threads > 0 ? threads : processors - other; };
    name += fmt::format(", {} for prefill and {} for decode",
                        own(settings.prefill_threads, settings.decode_threads),
                        own(settings.decode_threads, settings.prefill_threads));
  } else if (settings.threads > 0) {
    name += fmt::format(", {} threads", settings.threads);
  }
  return name;
}

fs::path ProfilePath(const fs::path& cache, const DeviceSettings& settings, ModelSource& model) {
  const std::string fingerprint = Fingerprint(settings);
  return cache / kProfiles /
         fmt::format("{}-{:016x}-{:016x}.json", model.family, model.Digest(), Digest(fingerprint));
}

PrefillSetup SetUpPrefill(const DeviceSettings& settings, ModelSource& model) {
  if (settings.prefill != kAuto) return Only(settings.prefill, settings);
  if (!settings.cache || !AnyOfFamily(*settings.cache / kProfiles, model.family))
    return Uncalibrated(settings, model);
  const fs::path path = ProfilePath(*settings.cache, settings, model);
  if (!fs::exists(path)) return Uncalibrated(settings, model);
  MachineCosts costs = ReadMachineCosts(ParseJson(ReadTextFile(path), path.string()), path.string());
  std::erase_if(costs.units, [&](const PrefillCost& unit) {
    const BackendInfo* backend = FindBackend(unit.option);
    return !backend || !backend->prefills || (backend->needs_bundle && !HasBundle(settings, model));
  });
  costs = WithoutUseless(std::move(costs));
  PrefillSetup setup;
  for (const PrefillCost& unit : costs.units) setup.names.push_back(unit.option);
  setup.costs = costs.units;
  setup.choose = [planner = std::make_shared<const Planner>(std::move(costs))](
                     const PrefillQuestion& question) { return planner->Choose(question); };
  return setup;
}

}  // namespace pd
