#include "coreml/mil/builder.h"

#include <iterator>
#include <set>

#include "base/error.h"

namespace pd::mil {
namespace {

// Equal only for equal values.
std::string Key(const Value& value) {
  std::string key = ToString(value.type) + ":";
  if (value.type.dtype == DataType::kString) {
    for (const std::string& s : ReadStrings(value)) key += fmt::format("{}:{}", s.size(), s);
    return key;
  }
  for (std::byte b : value.bytes()) key += char(b);
  return key;
}

}  // namespace

std::string FunctionBuilder::Input(const std::string& name, const TensorType& type) {
  const auto [it, added] = types_.try_emplace(name, type);
  PD_CHECK(it->second == type);
  if (added) function_.inputs.push_back({name, type});
  return name;
}

std::string FunctionBuilder::Const(const std::string& name, const Value& value) {
  if (const auto it = types_.find(name); it != types_.end()) {
    PD_CHECK(it->second == value.type);
    return name;
  }
  Operation op;
  op.type = "const";
  op.attributes["val"] = value;
  if (!value.blob()) literals_[name] = value;
  return Add(std::move(op), name, value.type);
}

std::string FunctionBuilder::Constexpr(const std::string& type, const std::string& name,
                                       const std::vector<std::pair<std::string, Value>>& operands) {
  if (types_.contains(name)) return name;
  Operation op;
  op.type = type;
  Operands known;
  for (const auto& [parameter, value] : operands) {
    op.inputs[parameter] = {value};
    known[parameter] = {{value.type, value.blob() ? nullptr : &value}};
  }
  return Add(std::move(op), name, InferOutputs(type, known).at(0));
}

std::string FunctionBuilder::Op(const std::string& type, const Parameters& parameters, std::string name) {
  Operation op;
  op.type = type;
  Operands operands;
  const auto bind = [&](const std::string& parameter, const std::string& to) {
    const auto literal = literals_.find(to);
    operands[parameter].push_back({TypeOf(to), literal == literals_.end() ? nullptr : &literal->second});
    op.inputs[parameter].emplace_back(to);
  };
  for (const auto& [parameter, value] : parameters) {
    if (const auto* one = std::get_if<std::string>(&value))
      bind(parameter, *one);
    else if (const auto* literal = std::get_if<Value>(&value))
      bind(parameter, Literal(*literal));
    else
      for (const std::string& each : std::get<std::vector<std::string>>(value)) bind(parameter, each);
  }
  const std::vector<TensorType> results = InferOutputs(type, operands);
  PD_CHECK(results.size() == 1);
  if (name.empty()) name = fmt::format("{}_{}", type, next_++);
  return Add(std::move(op), name, results.front());
}

void FunctionBuilder::Output(const std::string& value, const std::string& name) {
  function_.body.outputs.push_back(Op("identity", {{"x", value}}, name));
}

Function FunctionBuilder::Finish() && {
  std::set<std::string> needed(function_.body.outputs.begin(), function_.body.outputs.end());
  std::vector<Operation>& ops = function_.body.operations;
  std::vector<Operation> kept;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (!needed.contains(op->outputs.front().name)) continue;
    for (const auto& [parameter, bindings] : op->inputs)
      for (const Binding& binding : bindings)
        if (const auto* name = std::get_if<std::string>(&binding)) needed.insert(*name);
    kept.push_back(std::move(*op));
  }
  ops.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::erase_if(function_.inputs, [&](const NamedType& input) { return !needed.contains(input.name); });
  return std::move(function_);
}

const TensorType& FunctionBuilder::TypeOf(const std::string& name) const {
  const auto it = types_.find(name);
  PD_CHECK(it != types_.end());
  return it->second;
}

std::string FunctionBuilder::Add(Operation op, const std::string& name, const TensorType& type) {
  PD_CHECK(types_.try_emplace(name, type).second);
  op.attributes["name"] = Scalar(name);
  op.outputs = {{name, type}};
  function_.body.operations.push_back(std::move(op));
  return name;
}

std::string FunctionBuilder::Literal(const Value& value) {
  std::string& name = made_[Key(value)];
  if (name.empty()) {
    name = fmt::format("literal_{}", made_.size() - 1);
    Const(name, value);
  }
  return name;
}

}  // namespace pd::mil
