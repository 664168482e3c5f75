// Core ML on macOS.
#include <mach-o/dyld.h>
#include <sys/sysctl.h>

#include "coreml/runtime/runtime.h"

namespace pd {
namespace {

std::string Sysctl(const char* name) {
  size_t size = 0;
  if (sysctlbyname(name, nullptr, &size, nullptr, 0) != 0 || size < 2) return "unknown";
  std::string value(size, '\0');
  if (sysctlbyname(name, value.data(), &size, nullptr, 0) != 0) return "unknown";
  value.resize(size - 1);  // drops the terminating zero
  return value;
}

}  // namespace

std::unique_ptr<CoreMl> SystemCoreMl() { return MakeCoreMl(); }
std::string SystemBuild() { return Sysctl("kern.osversion"); }
std::string MachineModel() { return Sysctl("hw.model"); }

std::filesystem::path OwnExecutable() {
  uint32_t size = 0;
  _NSGetExecutablePath(nullptr, &size);  // returns the needed size
  std::string path(size, '\0');
  if (_NSGetExecutablePath(path.data(), &size) != 0) return {};
  return path.c_str();
}

}  // namespace pd
