#include "planning/roofline.h"

#include <fmt/format.h>

#include <algorithm>

namespace pd {
namespace {

// A device that reaches this share of its peak has no room for more work in the same time.
constexpr double kBusy = 0.1;
// On a busy device a prompt kLonger times as long takes at least kSlower times as long.
constexpr double kLonger = 4, kSlower = 1.5;
// The smallest weights in use, in bytes per parameter.
constexpr double kFewestBytes = 0.5;

std::string Tera(double value) { return fmt::format("{:.3g} TFLOP/s", value / 1e12); }

std::string Work(double flops, double ms, double flops_per_s) {
  return fmt::format("{:.3g} TFLOP in {:.4g} ms = {}", flops / 1e12, ms, Tera(flops_per_s));
}

DeviceLimits LimitsOf(const DevicePeak& peak) { return {peak.flops, peak.bandwidth, peak.name, 1}; }

bool SameDevice(const TimedRow& a, const TimedRow& b) { return a.device == b.device; }

// A longer prompt on the same device that took hardly longer.
const TimedRow* FlatAgainst(const TimedRow& row, const std::vector<TimedRow>& rows) {
  for (const TimedRow& other : rows)
    if (SameDevice(row, other) && other.tokens >= kLonger * row.tokens && other.ms < kSlower * row.ms)
      return &other;
  return nullptr;
}

// For the first row of a device, a later row that was faster with more tokens: the first included compiling,
// loading or waking up.
const TimedRow* WarmerThan(const TimedRow& row, const std::vector<TimedRow>& rows) {
  bool first = true, passed = false;
  for (const TimedRow& other : rows) {
    if (&other == &row) {
      if (!first) return nullptr;
      passed = true;
    }
    if (!SameDevice(row, other)) continue;
    first = false;
    if (passed && other.tokens > row.tokens && other.ms < row.ms) return &other;
  }
  return nullptr;
}

CheckedRow Check(double params, const TimedRow& row, const std::vector<TimedRow>& rows) {
  CheckedRow checked;
  const double flops = 2 * params * row.tokens;
  const RooflineRates rates = RatesAgainst(flops, params * kFewestBytes, row.ms, LimitsOf(row.peak));
  checked.flops_per_s = rates.flops_per_s;
  checked.why = fmt::format("2 x {:.4g} parameters x {} tokens: ", params, row.tokens);
  if (!rates.impossible.empty()) {
    checked.verdict = Verdict::kImpossible;
    checked.why += rates.flops_share > 1
                       ? rates.impossible + ": was the result evaluated before the clock stopped?"
                       : "to read the weights, at 4 bits each, is " + rates.impossible;
    return checked;
  }
  checked.why += fmt::format("{}, {:.0f} % of the {} of {}", Work(flops, row.ms, rates.flops_per_s),
                             100 * rates.flops_share, Tera(row.peak.flops), row.peak.name);
  if (const TimedRow* flat = FlatAgainst(row, rows); flat && rates.flops_share > kBusy) {
    checked.verdict = Verdict::kDoubtful;
    checked.why += fmt::format(
        "; but {} tokens took {:.4g} ms: a device that is this busy does not do {:.3g} times the "
        "work in {:.3g} times the time",
        flat->tokens, flat->ms, double(flat->tokens) / row.tokens, flat->ms / row.ms);
  } else if (const TimedRow* warm = WarmerThan(row, rows)) {
    checked.why += fmt::format("; slower than {} tokens in {:.4g} ms after it: its time includes a warm-up",
                               warm->tokens, warm->ms);
  }
  return checked;
}

}  // namespace

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kImpossible:
      return "impossible";
    case Verdict::kDoubtful:
      return "doubtful";
    case Verdict::kPlausible:
      return "plausible";
  }
  return "?";
}

std::vector<CheckedRow> CheckRows(double params, const std::vector<TimedRow>& rows) {
  std::vector<CheckedRow> checked;
  for (const TimedRow& row : rows) checked.push_back(Check(params, row, rows));
  return checked;
}

RooflineRates RatesAgainst(double flops, double bytes, double ms, const DeviceLimits& limits) {
  RooflineRates rates;
  if (!(ms > 0)) return rates;
  const double seconds = ms / 1000;
  rates.flops_per_s = flops / seconds;
  rates.bytes_per_s = bytes / seconds;
  if (limits.flops > 0) rates.flops_share = rates.flops_per_s / limits.flops;
  if (limits.bandwidth > 0) rates.bandwidth_share = rates.bytes_per_s / limits.bandwidth;
  if (rates.bandwidth_share > limits.bandwidth_tolerance)
    rates.impossible =
        fmt::format("{:.4g} GB in {:.4g} ms = {:.4g} GB/s, more than the {:.4g} GB/s of {}", bytes / 1e9, ms,
                    rates.bytes_per_s / 1e9, limits.bandwidth / 1e9, limits.name);
  if (rates.flops_share > 1)
    rates.impossible = fmt::format("{}, more than the {} of {}", Work(flops, ms, rates.flops_per_s),
                                   Tera(limits.flops), limits.name);
  return rates;
}

}  // namespace pd
