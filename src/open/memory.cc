#include "open/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace pd {
namespace {

// The number after `key` in a file of lines "key number ...".
std::optional<size_t> Field(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    size_t value = 0;
    if (word == key && in >> value) return value;
  }
  return std::nullopt;
}

std::optional<size_t> SystemAvailable() {
  const auto kilobytes = Field("/proc/meminfo", "MemAvailable:");
  return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
}

// Control group version 2. Its page cache is given back when asked for, so only the rest counts as used.
std::optional<size_t> GroupAvailable() {
  std::ifstream in("/sys/fs/cgroup/memory.max");
  size_t most = 0;
  if (!(in >> most)) return std::nullopt;  // absent, or "max": no limit
  const size_t used = Field("/sys/fs/cgroup/memory.stat", "anon").value_or(0);
  return most - std::min(most, used);
}

}  // namespace

size_t AvailableMemory() {
  const size_t physical = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
  return std::min({physical, SystemAvailable().value_or(physical), GroupAvailable().value_or(physical)});
}

}  // namespace pd
