// Checks op by op, without the hardware, the rules for staying on the Neural Engine: what other projects saw
// run, fail or be slow there (docs/decisions/coreml.md). A clean report does not prove placement.
#pragma once
#include <string>
#include <vector>

#include "coreml/mil/program.h"

namespace pd::mil {

enum class Verdict : uint8_t { kGood, kWarning, kViolation };

struct LintedOp {
  std::string type, name;
  TensorType result;  // the first result; for write_state its state
  Verdict verdict = Verdict::kGood;
  std::string reason;  // empty when good; several are joined by "; "
  double flops = 0;    // of convolutions and matrix products; a multiplication and an addition count one each
  int64_t weight_bytes = 0;  // of constants that no earlier op has read
};

struct LintedFunction {
  std::string name;
  std::vector<LintedOp> ops;          // without constants
  std::vector<std::string> findings;  // warnings on the function as a whole
  std::vector<std::string> violations;
  double flops = 0;
  int64_t weight_bytes = 0;      // as stored
  int64_t activation_bytes = 0;  // inputs, outputs and the peak of live tensors between
  int CountOps(Verdict verdict) const;
  bool HasViolation() const { return !violations.empty() || CountOps(Verdict::kViolation) > 0; }
};

LintedFunction Lint(const std::string& name, const Function& function);

}  // namespace pd::mil
