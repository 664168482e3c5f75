// For systems without Core ML.
#include "coreml/runtime/runtime.h"

namespace pd {

std::unique_ptr<CoreMl> SystemCoreMl() { return nullptr; }
std::string SystemBuild() { return "unknown"; }
std::string MachineModel() { return "unknown"; }

std::filesystem::path OwnExecutable() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path() : path;
}

}  // namespace pd
