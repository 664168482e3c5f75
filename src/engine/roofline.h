// Whether a table of prefill times can be true.
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

// What a device was measured to do at most; 0: unknown.
struct DeviceLimits {
  double flops = 0, bandwidth = 0;  // operations and bytes a second
};

// A measurement of ours beside them.
struct RooflineRates {
  double flops_per_s = 0, bytes_per_s = 0;
  double flops_share = 0, bandwidth_share = 0;  // of the limits; 0: unknown
  std::string impossible;                       // not empty: the arithmetic that refuses it
};
RooflineRates RatesAgainst(double flops, double bytes, double ms, const DeviceLimits& limits);

}  // namespace pd
