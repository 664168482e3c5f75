// Whether rates can be true: ours, and a table of others' prefill times.
#pragma once
#include <string>
#include <vector>

namespace pd {

// What no device of its kind exceeds.
struct DevicePeak {
  std::string name;      // "M3 Ultra GPU"
  double flops = 0;      // operations a second, at the precision that models are run in
  double bandwidth = 0;  // bytes a second
};

struct TimedRow {
  std::string device;  // as the table calls it
  int tokens = 0;      // of one prompt, without history
  double ms = 0;
  DevicePeak peak;
};

enum class Verdict { kImpossible, kDoubtful, kPlausible };
const char* Name(Verdict verdict);  // "impossible", "doubtful", "plausible"

struct CheckedRow {
  double flops_per_s = 0;  // 2 operations for each parameter and token
  Verdict verdict = Verdict::kPlausible;
  std::string why;  // the arithmetic, in a sentence or several
};

// `params`: of the model, embeddings included or not: they are looked up. Rows of one device are one
// measurement, in the order in which they were taken.
std::vector<CheckedRow> CheckRows(double params, const std::vector<TimedRow>& rows);

// What a device does at most; 0: unknown.
struct DeviceLimits {
  double flops = 0;      // operations a second: a bound that nothing exceeds
  double bandwidth = 0;  // bytes a second, as measured
};

// A bandwidth is itself a measurement, of a machine that may have been busy: so far above it a rate may be.
inline constexpr double kBandwidthDoubt = 1.25;

// A measurement of ours beside them. 0: unknown.
struct RooflineRates {
  double flops_per_s = 0;
  double bytes_per_s = 0;                       // weights, keys and values read from memory
  double flops_share = 0, bandwidth_share = 0;  // of the limits
  // Not empty: the rates exceed what the device can do, this is the arithmetic. Then none of them may be
  // shown.
  std::string impossible;
};
// The gate of every rate that is printed. `flops` operations and `bytes` were done and read in `ms`.
RooflineRates RatesAgainst(double flops, double bytes, double ms, const DeviceLimits& limits);

}  // namespace pd
