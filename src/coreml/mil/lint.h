// The rules for staying on the Neural Engine, checked op by op without the hardware: what other projects saw
// run there, fail there, or be slow there (docs/decisions/coreml.md). A clean report is no proof of
// placement.
#pragma once
#include <string>
#include <vector>

#include "coreml/mil/program.h"

namespace pd::mil {

enum class Verdict : uint8_t { kGood, kWarning, kViolation };

struct LintedOp {
  std::string type, name;
  TensorType result;  // the first; of write_state its state
  Verdict verdict = Verdict::kGood;
  std::string reason;        // empty when good; several are joined by "; "
  double flops = 0;          // of convolutions and matrix products, a multiplication and an addition each
  int64_t weight_bytes = 0;  // of the constants it reads that no op before it has read
};

struct LintedFunction {
  std::string name;
  std::vector<LintedOp> ops;          // constants left out
  std::vector<std::string> findings;  // on the function as a whole; each is a warning
  std::vector<std::string> violations;
  double flops = 0;
  int64_t weight_bytes = 0;      // as stored
  int64_t activation_bytes = 0;  // inputs, outputs and what lives at the fullest moment between
  int CountOps(Verdict verdict) const;
  bool HasViolation() const { return !violations.empty() || CountOps(Verdict::kViolation) > 0; }
};

LintedFunction Lint(const std::string& name, const Function& function);

}  // namespace pd::mil
