#include "cli/chip_model.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "formats/model_source.h"
#include "planning/shapes.h"

namespace pd::cli {

void AddChipModel(const Command& command, ChipModel& options) {
  command.Text("-m,--model", options.model, "a known shape, or a model's file or folder");
  command.Number("--bits", options.bits, {1, 32}, "bits of a weight on the GPU, scales included");
}

ModelSpec SpecOf(const ChipModel& options) {
  if (std::filesystem::exists(options.model)) return OpenModel(options.model).spec;
  return KnownShape(options.model);
}

MachineCosts CostsOf(const ChipModel& options) {
  if (std::filesystem::is_regular_file(options.chip)) {
    const Json json = ParseJson(ReadTextFile(options.chip), options.chip);
    if (!json.contains("checks")) return ReadMachineCosts(json, options.chip);
    // A report of doctor --bundle holds one.
    if (const auto profile = json.find("profile"); profile != json.end() && !profile->is_null())
      return ReadMachineCosts(*profile, options.chip + ", profile");
    throw Fail(ErrorKind::kUnsupported, "{}: this report holds no profile: the devices were not timed",
               options.chip);
  }
  return pd::CostsOf(FindChip(options.chip), SpecOf(options), options.model, double(options.bits));
}

}  // namespace pd::cli
