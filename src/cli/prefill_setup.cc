#include "cli/prefill_setup.h"

#include <algorithm>
#include <memory>

#include "base/cores.h"
#include "base/digest.h"
#include "base/files.h"
#include "base/json.h"
#include "cli/model.h"
#include "engine/bandwidth.h"
#include "engine/planner.h"
#include "formats/model_source.h"
#include "mlx/mlx_device.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

bool Splits(const EngineFlags& flags) { return flags.prefill_threads + flags.decode_threads > 0; }

fs::path ProfileFolder() {
  const auto cache = CacheFolder();
  if (!cache) throw Fail(ErrorKind::kNotFound, "no folder for profiles: set PD_ENGINE_CACHE or HOME");
  return *cache / "profiles";
}

// Whether any profile could be this model's: its own takes a look at all of the weights.
bool AnyProfile(const ModelSource& model) {
  if (!CacheFolder()) return false;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(ProfileFolder(), error))
    if (entry.path().filename().string().starts_with(model.family + "-")) return true;
  return false;
}

std::string Settings(const EngineFlags& flags) {
  return fmt::format("version {}|{}|decode {}|mlx {}|bits {}", kMachineCostsVersion, MachineName(flags),
                     flags.decode, MlxBackendName(), flags.quantise_bits);
}

PrefillSetup Uncalibrated(const EngineFlags& flags, ModelSource& model) {
  PrefillSetup setup;
  setup.names = {flags.bundle.empty() ? flags.decode : "coreml"};
  std::string why;  // empty where there is no other device to choose
  if (!PrefillCandidates(flags, model).empty())
    why = fmt::format(
        "{}: not calibrated, so it was not compared with others; 'pd-engine calibrate' measures them",
        setup.names[0]);
  setup.choose = [why](const PrefillQuestion& question) { return PrefillChoice{0, question.chunk, why}; };
  return setup;
}

}  // namespace

std::vector<std::string> PrefillCandidates(const EngineFlags& flags, ModelSource& model) {
  std::vector<std::string> names = UsefulDeviceNames();
  std::erase_if(names, [&](const std::string& name) {
    if (name == "coreml") return !FindBundle(flags.bundle, model);
    return name == flags.decode && !(name == "cpu" && Splits(flags));
  });
  return names;
}

std::string MachineName(const EngineFlags& flags) {
  const int processors = int(AvailableCores().size());
  std::string name = fmt::format("{}, {} processors", ProcessorName(), processors);
  if (Splits(flags)) {
    const auto own = [&](int threads, int other) { return threads > 0 ? threads : processors - other; };
    name +=
        fmt::format(", {} for prefill and {} for decode", own(flags.prefill_threads, flags.decode_threads),
                    own(flags.decode_threads, flags.prefill_threads));
  } else if (flags.threads > 0) {
    name += fmt::format(", {} threads", flags.threads);
  }
  return name;
}

fs::path ProfilePath(const EngineFlags& flags, ModelSource& model) {
  const std::string settings = Settings(flags);
  return ProfileFolder() /
         fmt::format("{}-{:016x}-{:016x}.json", model.family, model.Digest(), Digest(settings));
}

PrefillSetup SetUpPrefill(const EngineFlags& flags, ModelSource& model) {
  if (flags.prefill != kAuto) return {{flags.prefill}, {}};
  if (!AnyProfile(model)) return Uncalibrated(flags, model);
  const fs::path path = ProfilePath(flags, model);
  if (!fs::exists(path)) return Uncalibrated(flags, model);
  MachineCosts costs = ReadMachineCosts(ParseJson(ReadTextFile(path), path.string()), path.string());
  const auto built_in = PrefillDeviceNames();
  std::erase_if(costs.units, [&](const PrefillCost& unit) {
    if (unit.option == "coreml") return !FindBundle(flags.bundle, model);  // removed since
    return std::ranges::find(built_in, unit.option) == built_in.end();
  });
  costs = WithoutUseless(std::move(costs));
  PrefillSetup setup;
  for (const PrefillCost& unit : costs.units) setup.names.push_back(unit.option);
  setup.costs = costs.units;
  setup.choose = [planner = std::make_shared<const Planner>(std::move(costs))](
                     const PrefillQuestion& question) { return planner->Choose(question); };
  return setup;
}

}  // namespace pd::cli
