#include "base/cores.h"

#include <algorithm>
#include <numeric>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace pd {

std::vector<int> AvailableCores() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    return cores;
  }
#endif
  std::vector<int> cores(std::max(1u, std::thread::hardware_concurrency()));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

bool BindThisThread([[maybe_unused]] std::span<const int> cores) {
#ifdef __linux__
  if (cores.empty()) return true;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores)
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
#else
  return cores.empty();
#endif
}

}  // namespace pd
