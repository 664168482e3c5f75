// Type inference: an op's result types from its operands. The builder takes result types from here; the
// package reader compares them with a file's declarations.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/mil/program.h"

namespace pd::mil {

// An operand that a parameter is bound to. `value` is not nullptr if it is known before run time.
struct Operand {
  TensorType type;
  const Value* value = nullptr;
};
using Operands = std::map<std::string, std::vector<Operand>, std::less<>>;  // by parameter

// Ops known to inference: those of the ios15 to ios18 op sets that work on tensors and states. Not const,
// cond and while_loop, whose contents declare their results.
bool IsKnownOp(std::string_view op);

// Result types, in order. Axes that depend on run-time values are kUnknown. PD_CHECKs IsKnownOp; every axis
// of `operands` must be known. Throws kCorruptFile (the error, without the place) for operands that the op
// does not support.
std::vector<TensorType> InferOutputs(std::string_view op, const Operands& operands);

// numpy's broadcasting. Throws kCorruptFile.
Dims Broadcast(const Dims& x, const Dims& y);

}  // namespace pd::mil
