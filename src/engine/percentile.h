// What lies at a share of ascending values.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace pd {

// Linear between neighbours; 0 of no values.
inline double Percentile(const std::vector<double>& ascending, double percent) {
  if (ascending.empty()) return 0;
  const double at = percent / 100 * double(ascending.size() - 1);
  const auto below = size_t(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (ascending[above] - ascending[below]) * (at - double(below));
}

}  // namespace pd
