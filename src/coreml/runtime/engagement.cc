#include "coreml/runtime/engagement.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace pd {
namespace {

double Median(std::span<const double> times) {
  PD_CHECK(!times.empty());
  std::vector<double> sorted(times.begin(), times.end());
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

}  // namespace

const char* Name(Engagement::Verdict verdict) {
  switch (verdict) {
    case Engagement::Verdict::kEngaged:
      return "engaged";
    case Engagement::Verdict::kNotEngaged:
      return "not_engaged";
    case Engagement::Verdict::kUnknown:
      return "unknown";
  }
  return "?";
}

std::optional<Engagement::Verdict> VerdictOf(std::string_view name) {
  using enum Engagement::Verdict;
  for (const auto verdict : std::array{kEngaged, kNotEngaged, kUnknown})
    if (name == Name(verdict)) return verdict;
  return std::nullopt;
}

Engagement JudgeEngagement(std::span<const double> with_engine, std::span<const double> cpu_only,
                           const EngagementLimits& limits) {
  Engagement result;
  result.engine_ms = Median(with_engine);
  result.cpu_ms = Median(cpu_only);
  if (result.cpu_ms < limits.least_ms)
    result.verdict = Engagement::Verdict::kUnknown;
  else if (result.engine_ms <= limits.most_ratio * result.cpu_ms)
    result.verdict = Engagement::Verdict::kEngaged;
  else
    result.verdict = Engagement::Verdict::kNotEngaged;
  return result;
}

}  // namespace pd
