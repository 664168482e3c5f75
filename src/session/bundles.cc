#include "session/bundles.h"

#include <fmt/format.h>

#include "base/error.h"
#include "open/open.h"
#include "session/family_files.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "coreml";

}  // namespace

fs::path DefaultBundlePath(const fs::path& cache, ModelSource& model) {
  return cache / kFolder / fmt::format("{}-{:016x}", model.family, model.Digest());
}

std::optional<fs::path> FindBundle(const fs::path& named, const std::optional<fs::path>& cache,
                                   ModelSource& model) {
  if (!named.empty()) return named;
  if (!cache || !AnyOfFamily(*cache / kFolder, model.family)) return std::nullopt;
  fs::path path = DefaultBundlePath(*cache, model);
  if (!IsBundle(path)) return std::nullopt;
  return path;
}

fs::path RequireBundle(const fs::path& named, const std::optional<fs::path>& cache, ModelSource& model) {
  if (auto path = FindBundle(named, cache, model)) return *path;
  throw Fail(ErrorKind::kNotFound,
             "{0}: the model was not exported yet: run 'pd-engine export {0}', or name a bundle",
             model.path.string());
}

}  // namespace pd
