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

// A parameter of an op: a name, several (concat), or a literal, for which the builder makes a constant.
using Parameter = std::variant<std::string, std::vector<std::string>, Value>;
using Parameters = std::vector<std::pair<std::string, Parameter>>;

// Names that it returns and takes are those of inputs, constants and results. What it PD_CHECKs is a bug of
// the caller; operands that an op cannot take throw kCorruptFile as in InferOutputs.
class FunctionBuilder {
 public:
  explicit FunctionBuilder(std::string opset) { function_.opset = std::move(opset); }

  // Asking again for the same name gives the same input or constant.
  std::string Input(const std::string& name, const TensorType& type);
  std::string Const(const std::string& name, const Value& value);
  // A constexpr op of the ios18 form: operands are bound to constants.
  std::string Constexpr(const std::string& op, const std::string& name,
                        const std::vector<std::pair<std::string, Value>>& operands);

  // An op with one result. Literals that several ops want become one constant. Without a name, one is made.
  std::string Op(const std::string& op, const Parameters& parameters, std::string name = "");

  // Returns `value` from the function as `name`: through an identity op, so that neither an input nor a
  // tensor that other ops read is itself a result.
  void Output(const std::string& value, const std::string& name);

  const TensorType& TypeOf(const std::string& name) const;
  const Dims& ShapeOf(const std::string& name) const { return TypeOf(name).shape; }
  bool Has(const std::string& name) const { return types_.contains(name); }
  // Ops, constants and inputs that no output needs are left out.
  Function Finish() &&;

 private:
  std::string Add(Operation op, const std::string& name, const TensorType& type);
  std::string Literal(const Value& value);

  Function function_;
  std::map<std::string, TensorType> types_;  // of everything defined
  std::map<std::string, Value> literals_;    // by name
  std::map<std::string, std::string> made_;  // names of literals, by what they hold
  int next_ = 0;                             // numbers made names
};

}  // namespace pd::mil
