// Builds one function of a program, op by op, in order of execution.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coreml/mil/infer.h"
#include "coreml/mil/program.h"

namespace pd::mil {

// A parameter of an op: a name, several names (concat), or a literal, for which the builder makes a constant.
using Parameter = std::variant<std::string, std::vector<std::string>, Value>;
using Parameters = std::vector<std::pair<std::string, Parameter>>;

// The names passed in and returned are those of inputs, constants and results. A failed PD_CHECK is the
// caller's bug; operands that an op does not support throw kCorruptFile as in InferOutputs.
class FunctionBuilder {
 public:
  explicit FunctionBuilder(std::string opset) { function_.opset = std::move(opset); }

  // The same name gives the same input or constant again.
  std::string Input(const std::string& name, const TensorType& type);
  std::string Const(const std::string& name, const Value& value);
  // A constexpr op of the ios18 form: operands are bound to constants.
  std::string Constexpr(const std::string& op, const std::string& name,
                        const std::vector<std::pair<std::string, Value>>& operands);

  // An op with one result. A literal used by several ops becomes one constant. An empty name is replaced by a
  // generated one.
  std::string Op(const std::string& op, const Parameters& parameters, std::string name = "");

  // Returns `value` from the function as `name`, through an identity op: a result must be neither an input
  // nor a tensor that other ops read.
  void Output(const std::string& value, const std::string& name);

  const TensorType& TypeOf(const std::string& name) const;
  const Dims& ShapeOf(const std::string& name) const { return TypeOf(name).shape; }
  bool Has(const std::string& name) const { return types_.contains(name); }
  // Leaves out ops, constants and inputs that no output needs.
  Function Finish() &&;

 private:
  std::string Add(Operation op, const std::string& name, const TensorType& type);
  std::string Literal(const Value& value);

  Function function_;
  std::map<std::string, TensorType> types_;  // of all defined names
  std::map<std::string, Value> literals_;    // by name
  std::map<std::string, std::string> made_;  // names of literals, by value
  int next_ = 0;                             // number for the next generated name
};

}  // namespace pd::mil
