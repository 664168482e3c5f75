#include "coreml/runtime/engagement.h"

#include <array>

#include "base/error.h"
#include "base/percentile.h"

namespace pd {

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
  PD_CHECK(!with_engine.empty() && !cpu_only.empty());
  result.engine_ms = Median({with_engine.begin(), with_engine.end()});
  result.cpu_ms = Median({cpu_only.begin(), cpu_only.end()});
  if (result.cpu_ms < limits.least_ms)
    result.verdict = Engagement::Verdict::kUnknown;
  else if (result.engine_ms <= limits.most_ratio * result.cpu_ms)
    result.verdict = Engagement::Verdict::kEngaged;
  else
    result.verdict = Engagement::Verdict::kNotEngaged;
  return result;
}

}  // namespace pd
