#include "cli/units.h"

#include <fmt/format.h>

#include <cmath>

namespace pd::cli {

std::string Grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (int at = int(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) digits.insert(size_t(at), ",");
  return digits;
}

std::string WithUnit(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) value /= 1000, ++prefix;
  const int decimals = prefix == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}{}", value, decimals, kPrefixes[prefix], unit);
}

}  // namespace pd::cli
