// Checks whether measured rates are physically possible: ours, and tables of prefill times.
#pragma once
#include <string>
#include <vector>

namespace pd {

// The published maximum of a device.
struct DevicePeak {
  std::string name;      // "M3 Ultra GPU"
  double flops = 0;      // operations a second, at the precision that models are run in
  double bandwidth = 0;  // bytes a second
};

struct TimedRow {
  std::string device;  // as the table calls it
  int tokens = 0;      // of one prompt without history
  double ms = 0;
  DevicePeak peak;
};

enum class Verdict { kImpossible, kDoubtful, kPlausible };
const char* Name(Verdict verdict);  // "impossible", "doubtful", "plausible"

struct CheckedRow {
  double flops_per_s = 0;  // 2 operations per parameter and token
  Verdict verdict = Verdict::kPlausible;
  std::string why;  // the arithmetic
};

// `params`: of the model, with or without embeddings, which are only looked up. Rows of one device are one
// measurement, in the order they were taken.
std::vector<CheckedRow> CheckRows(double params, const std::vector<TimedRow>& rows);

// Upper bounds of a device; 0: unknown.
struct DeviceLimits {
  double flops = 0;      // operations a second
  double bandwidth = 0;  // bytes a second
  std::string name = "this device";
  // A rate may exceed the bandwidth by this factor: a measured one may have been taken on a busy machine.
  double bandwidth_tolerance = 1.25;
};

// The rates of a measurement. 0: unknown.
struct RooflineRates {
  double flops_per_s = 0;
  double bytes_per_s = 0;                       // weights, keys and values read from memory
  double flops_share = 0, bandwidth_share = 0;  // of the limits
  // Not empty: the rates exceed the limits, and this is the arithmetic. Then none of them may be shown.
  std::string impossible;
};
// The gate that every printed rate passes. In `ms` the device did `flops` operations and read `bytes`.
RooflineRates RatesAgainst(double flops, double bytes, double ms, const DeviceLimits& limits);

}  // namespace pd
