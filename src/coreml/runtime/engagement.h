// Whether the Neural Engine did run a function, told by the clock: a plan is a promise.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pd {

struct Engagement {
  enum class Verdict : uint8_t {
    kEngaged,     // clearly faster than the processor alone
    kNotEngaged,  // as slow as the processor alone, or slower: it ran there
    kUnknown,     // too short to tell apart; taken for engaged
  };
  Verdict verdict = Verdict::kUnknown;
  double engine_ms = 0, cpu_ms = 0;  // medians of a prediction
};
const char* Name(Engagement::Verdict verdict);  // "engaged", "not_engaged", "unknown"
std::optional<Engagement::Verdict> VerdictOf(std::string_view name);

struct EngagementLimits {
  int runs = 3;             // of each kind, after one to warm up
  double most_ratio = 0.8;  // of the processor's time, for an engine that ran
  double least_ms = 1;      // of the processor's time, below which nothing can be told
};

// From times of single predictions, in milliseconds; neither list is empty.
Engagement JudgeEngagement(std::span<const double> with_engine, std::span<const double> cpu_only,
                           const EngagementLimits& limits);

}  // namespace pd
