#include "engine/roofline.h"

#include <fmt/format.h>

#include <algorithm>

namespace pd {
namespace {

// A row that uses this share of the peak leaves no room for more work in the same time.
constexpr double kBusy = 0.1;
// So much longer a prompt must take at least this much more time on a busy device.
constexpr double kLonger = 4, kSlower = 1.5;
// Fewer bytes for a parameter than this nobody runs on these devices.
constexpr double kFewestBytes = 0.5;

std::string Tera(double value) { return fmt::format("{:.3g} TFLOP/s", value / 1e12); }

bool SameDevice(const TimedRow& a, const TimedRow& b) { return a.device == b.device; }

// A longer prompt of the same device that took no longer.
const TimedRow* FlatAgainst(const TimedRow& row, const std::vector<TimedRow>& rows) {
  for (const TimedRow& other : rows)
    if (SameDevice(row, other) && other.tokens >= kLonger * row.tokens && other.ms < kSlower * row.ms)
      return &other;
  return nullptr;
}

// A later row that was faster with more tokens: the first paid for compiling, loading, waking up.
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
  const double flops = 2 * params * row.tokens, seconds = row.ms / 1000;
  checked.flops_per_s = flops / seconds;
  checked.why = fmt::format("2 x {:.4g} parameters x {} tokens = {:.3g} TFLOP in {:.4g} ms = {}", params,
                            row.tokens, flops / 1e12, row.ms, Tera(checked.flops_per_s));
  if (checked.flops_per_s > row.peak.flops) {
    checked.verdict = Verdict::kImpossible;
    checked.why +=
        fmt::format(", {:.3g} times the {} of {}: was the result evaluated before the clock stopped?",
                    checked.flops_per_s / row.peak.flops, Tera(row.peak.flops), row.peak.name);
    return checked;
  }
  checked.why += fmt::format(", {:.0f} % of the {} of {}", 100 * checked.flops_per_s / row.peak.flops,
                             Tera(row.peak.flops), row.peak.name);
  const double bytes_per_s = params * kFewestBytes / seconds;
  if (bytes_per_s > row.peak.bandwidth) {
    checked.verdict = Verdict::kImpossible;
    checked.why +=
        fmt::format("; but its weights, at 4 bits each, take {:.3g} GB/s to read, and {} reads {:.3g} GB/s",
                    bytes_per_s / 1e9, row.peak.name, row.peak.bandwidth / 1e9);
    return checked;
  }
  if (const TimedRow* flat = FlatAgainst(row, rows); flat && checked.flops_per_s > kBusy * row.peak.flops) {
    checked.verdict = Verdict::kDoubtful;
    checked.why += fmt::format(
        "; but {} tokens took {:.4g} ms: a device that is this busy does not do {:.3g} times the "
        "work in {:.3g} times the time",
        flat->tokens, flat->ms, double(flat->tokens) / row.tokens, flat->ms / row.ms);
  } else if (const TimedRow* warm = WarmerThan(row, rows)) {
    checked.why += fmt::format("; slower than {} tokens in {:.4g} ms after it: a warm-up was timed with it",
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
  if (rates.bandwidth_share > kBandwidthDoubt)
    rates.impossible = fmt::format("{:.4g} GB in {:.4g} ms = {:.4g} GB/s, the memory gives {:.4g} GB/s",
                                   bytes / 1e9, ms, rates.bytes_per_s / 1e9, limits.bandwidth / 1e9);
  if (rates.flops_share > 1)
    rates.impossible = fmt::format("{:.4g} TFLOP in {:.4g} ms = {}, the device does {} at most", flops / 1e12,
                                   ms, Tera(rates.flops_per_s), Tera(limits.flops));
  return rates;
}

}  // namespace pd
