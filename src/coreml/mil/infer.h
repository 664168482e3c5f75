// Type inference: what an op's results are, from what its parameters are bound to. The builder takes result
// types from here, the package reader compares them with what a file declares.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/mil/program.h"

namespace pd::mil {

// What one binding of a parameter refers to. `value` is not null when it is known before run time.
struct Operand {
  TensorType type;
  const Value* value = nullptr;
};
using Operands = std::map<std::string, std::vector<Operand>, std::less<>>;  // by parameter

// Ops that inference knows: those of the ios15 to ios18 op sets that work on tensors and states. const, cond
// and while_loop are not among them: their results are declared by what they contain.
bool IsKnownOp(std::string_view op);

// Result types, in order. Axes that depend on run-time values are kUnknown. PD_CHECKs IsKnownOp; every axis
// of `operands` must be known. Throws kCorruptFile (what is wrong, without the place) for operands that the
// op cannot take.
std::vector<TensorType> InferOutputs(std::string_view op, const Operands& operands);

// numpy's broadcasting. Throws kCorruptFile.
Dims Broadcast(const Dims& x, const Dims& y);

}  // namespace pd::mil
