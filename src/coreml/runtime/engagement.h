// Whether the Neural Engine really ran a function, decided by timing: a plan is not proof.
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
    kNotEngaged,  // as slow as the processor alone, or slower: it ran on the processor
    kUnknown,     // too short to decide; treated as engaged
  };
  Verdict verdict = Verdict::kUnknown;
  double engine_ms = 0, cpu_ms = 0;  // median time of a prediction
};
const char* Name(Engagement::Verdict verdict);  // "engaged", "not_engaged", "unknown"
std::optional<Engagement::Verdict> VerdictOf(std::string_view name);

struct EngagementLimits {
  int runs = 3;             // of each kind, after one warm-up
  double most_ratio = 0.8;  // of the processor's time, if the engine ran
  double least_ms = 1;      // of the processor's time; below this no decision is possible
};

// From times of single predictions, in milliseconds; neither list is empty.
Engagement JudgeEngagement(std::span<const double> with_engine, std::span<const double> cpu_only,
                           const EngagementLimits& limits);

}  // namespace pd
