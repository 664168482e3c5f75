// The clock for statistics and measurements.
#pragma once
#include <chrono>

namespace pd {

inline double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace pd
