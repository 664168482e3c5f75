// Percentiles and medians.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace pd {

// Linear between neighbours; 0 for no values.
inline double Percentile(std::span<const double> ascending, double percent) {
  if (ascending.empty()) return 0;
  const double at = percent / 100 * double(ascending.size() - 1);
  const auto below = size_t(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return ascending[below] + (ascending[above] - ascending[below]) * (at - double(below));
}

// Percentile 50: for an even number of values the mean of the middle two, so neither half is preferred.
// Values in any order; 0 for no values.
inline double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return Percentile(values, 50);
}

}  // namespace pd
