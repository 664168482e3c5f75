#include "session/calibrate.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "open/memory.h"
#include "planning/calibration.h"
#include "session/prefill_setup.h"

namespace pd {
namespace {

constexpr int kTokens = 8192;  // that the longest measurement holds at a time, with room to spare

}  // namespace

Calibration CalibrateMachine(ModelSource& model, const DeviceSettings& settings,
                             const std::filesystem::path& cache,
                             const std::function<void(int done, int total)>& progress) {
  const auto check_memory = [&](const std::vector<std::string>& names) {
    CheckMemory(model, names, std::min(kTokens, model.spec.max_context), AvailableMemory(),
                settings.quantise_bits);
  };
  check_memory({settings.decode});  // first: finding bundles and profiles reads all weights
  Calibration calibration;
  calibration.profile = ProfilePath(cache, settings, model);
  const std::vector<std::string> candidates = PrefillCandidates(settings, model);
  std::vector<std::string> names = candidates;
  names.push_back(settings.decode);
  check_memory(names);

  const auto start = std::chrono::steady_clock::now();
  OpenOptions open = ToOpenOptions(settings, model, candidates);
  open.batches = {1, 2, 4, 8, 16, 32};
  open.progress = [&](size_t, size_t) { progress(0, 0); };
  Devices opened = OpenDevices(model, candidates, settings.decode, open);
  MachineCosts& costs = calibration.costs;
  costs = Calibrate({std::move(opened.prefill), std::move(opened.decode), opened.leave_thread}, model.spec,
                    {progress});
  calibration.seconds = MillisecondsSince(start) / 1000;
  costs.machine = MachineName(settings);
  costs.model = model.path.filename().string();
  for (size_t i = 0; i < candidates.size(); ++i) costs.units[i].option = candidates[i];

  std::filesystem::create_directories(calibration.profile.parent_path());
  WriteFileAtomically(calibration.profile, ToJson(costs).dump(1) + "\n");
  return calibration;
}

}  // namespace pd
