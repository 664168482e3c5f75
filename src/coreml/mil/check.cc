#include "coreml/mil/check.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"

namespace pd::mil {
namespace {

constexpr size_t kMostRank = 5;          // of a tensor at run time
constexpr size_t kMostConstantRank = 7;  // a table of a constexpr op has two more axes
constexpr int64_t kMostElements = int64_t(1) << 40;

// Words of MIL text, which Apple's compiler generates from names.
const std::set<std::string, std::less<>>& Reserved() {
  static const std::set<std::string, std::less<>> words = {
      "any",    "bool",   "program", "func", "tensor", "list",  "dict",  "tuple", "true",  "false",
      "string", "bf16",   "fp16",    "fp32", "fp64",   "int8",  "int16", "int32", "int64", "uint8",
      "uint16", "uint32", "uint64",  "int4", "uint1",  "uint2", "uint3", "uint4", "uint6", "state"};
  return words;
}

bool IsIdentifier(const std::string& name) {
  if (name.empty() || std::isdigit(uint8_t(name[0])) || name[0] == '@') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return std::isalnum(uint8_t(c)) || c == '_' || c == '@'; }) &&
         !Reserved().contains(name);
}

bool IsConstexpr(const Operation& op) { return op.type.starts_with("constexpr_"); }

bool AllKnown(const TensorType& type) {
  return std::none_of(type.shape.begin(), type.shape.end(), [](int64_t d) { return d == kUnknown; });
}

class Checker {
 public:
  explicit Checker(std::string function) : function_(std::move(function)) {}

  void CheckFunction(const Function& function) {
    place_ = "inputs";
    Scope scope;
    for (const NamedType& input : function.inputs) {
      Define(scope, input, nullptr, kMostRank);
      if (input.type.shape.empty()) throw Bad("'{}' has rank 0", input.name);
    }
    Require(function.body.inputs.empty(), "its block has inputs of its own");
    CheckBlock(function.body, scope);
  }

 private:
  template <class... Args>
  Error Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorKind::kCorruptFile, "function {}: {}: {}", function_, place_,
                fmt::format(format, std::forward<Args>(args)...));
  }
  void Require(bool ok, const char* otherwise) const {
    if (!ok) throw Bad("{}", otherwise);
  }

  void CheckType(const TensorType& type, const std::string& name, size_t most_rank) const {
    if (type.shape.size() > most_rank)
      throw Bad("'{}' has rank {}, at most {} is possible", name, type.shape.size(), most_rank);
    int64_t count = 1;
    for (int64_t d : type.shape) {
      if (d == kUnknown) continue;
      const bool possible = d >= 0 && d <= INT32_MAX;
      if (possible) count *= std::max<int64_t>(d, 1);
      if (!possible || count > kMostElements)
        throw Bad("'{}' has an impossible shape {}", name, ToString(type));
    }
  }

  void Define(Scope& scope, const NamedType& named, const Value* value, size_t most_rank) {
    if (!IsIdentifier(named.name)) throw Bad("'{}' is not an identifier", named.name);
    if (!defined_.insert(named.name).second) throw Bad("'{}' is defined twice", named.name);
    CheckType(named.type, named.name, most_rank);
    const bool at_hand = value && (!value->blob() || value->bytes().size() == ByteSize(value->type));
    scope.Define(named, at_hand ? value : nullptr);
  }

  void CheckBlock(const Block& block, Scope scope) {
    const std::string outside = place_;
    for (const NamedType& input : block.inputs) Define(scope, input, nullptr, kMostRank);
    for (size_t i = 0; i < block.operations.size(); ++i) {
      const Operation& op = block.operations[i];
      place_ =
          fmt::format("op {} ({}{})", i, op.type, op.outputs.empty() ? "" : " '" + op.outputs[0].name + "'");
      CheckOperation(op, scope);
    }
    place_ = "outputs";
    for (const std::string& name : block.outputs) {
      const Scope::Entry* entry = scope.Find(name);
      if (!entry) throw Bad("'{}' is not defined", name);
      if (entry->type->state) throw Bad("'{}' is a state", name);
    }
    place_ = outside;
  }

  void CheckOperation(const Operation& op, Scope& scope) {
    const bool constant = op.type == "const", constexpr_op = IsConstexpr(op);
    const auto name = op.attributes.find("name");
    if (name != op.attributes.end())
      Require(name->second.type == TensorType{DataType::kString, {}}, "attribute 'name' is not a string");
    for (const auto& [key, value] : op.attributes) {
      CheckValue(value, key);
      if (key != "name" && !(constant && key == "val") && !constexpr_op)
        throw Bad("unexpected attribute '{}'", key);
    }
    if (constant) return CheckConstant(op, scope);

    for (const auto& [parameter, bindings] : op.inputs) {
      if (bindings.empty()) throw Bad("'{}' is bound to nothing", parameter);
      for (const Binding& binding : bindings) CheckBinding(op, parameter, binding, scope);
    }
    const bool control = op.type == "cond" || op.type == "while_loop";
    Require(control == !op.blocks.empty(),
            control ? "it has no blocks" : "only cond and while_loop have blocks");
    for (const Block& block : op.blocks) CheckBlock(block, scope);
    CheckResults(op, scope);
    for (const NamedType& output : op.outputs)
      Define(scope, output, nullptr, constexpr_op ? kMostConstantRank : kMostRank);
  }

  void CheckConstant(const Operation& op, Scope& scope) {
    Require(op.inputs.empty() && op.blocks.empty(), "a constant has no inputs and no blocks");
    const auto value = op.attributes.find("val");
    Require(value != op.attributes.end(), "a constant needs 'val'");
    Require(op.outputs.size() == 1, "a constant must have one result");
    const NamedType& output = op.outputs.front();
    if (output.state || output.type != value->second.type)
      throw Bad("declared {}, but its value is {}", ToString(output.type), ToString(value->second.type));
    Define(scope, output, &value->second, kMostConstantRank);
  }

  void CheckValue(const Value& value, const std::string& where) const {
    CheckType(value.type, where, kMostConstantRank);
    if (!AllKnown(value.type)) throw Bad("'{}' is a constant of unknown shape", where);
  }

  void CheckBinding(const Operation& op, const std::string& parameter, const Binding& binding,
                    const Scope& scope) const {
    if (const auto* value = std::get_if<Value>(&binding)) return CheckValue(*value, parameter);
    const std::string& name = std::get<std::string>(binding);
    const Scope::Entry* entry = scope.Find(name);
    if (!entry) throw Bad("'{}' uses '{}', which is not defined earlier", parameter, name);
    const bool state_place = parameter == "input" && (op.type == "read_state" || op.type == "write_state");
    if (entry->type->state && !state_place)
      throw Bad("'{}' uses the state '{}' as a tensor", parameter, name);
    if (!entry->type->state && state_place) throw Bad("'{}' uses '{}' as a state", parameter, name);
  }

  void CheckResults(const Operation& op, const Scope& scope) const {
    for (const NamedType& output : op.outputs) Require(!output.state, "a result is a state");
    if (!IsKnownOp(op.type)) return;
    const Operands operands = scope.Resolve(op);
    for (const auto& [parameter, all] : operands)
      for (const Operand& operand : all)
        if (!AllKnown(operand.type)) return;
    std::vector<TensorType> inferred;
    try {
      inferred = InferOutputs(op.type, operands);
    } catch (const Error& error) {
      throw Bad("{}", error.what());
    }
    if (inferred.size() != op.outputs.size())
      throw Bad("declares {} results, but has {}", op.outputs.size(), inferred.size());
    for (size_t i = 0; i < inferred.size(); ++i) {
      const TensorType& declared = op.outputs[i].type;
      bool same = declared.dtype == inferred[i].dtype && declared.shape.size() == inferred[i].shape.size();
      for (size_t a = 0; same && a < declared.shape.size(); ++a)
        same = inferred[i].shape[a] == kUnknown || inferred[i].shape[a] == declared.shape[a];
      if (!same) throw Bad("declares {}, but returns {}", ToString(declared), ToString(inferred[i]));
    }
  }

  std::string function_, place_;
  std::set<std::string> defined_;
};

}  // namespace

Operands Scope::Resolve(const Operation& op) const {
  Operands operands;
  const auto operand = [](const Value& value) {
    const bool at_hand = !value.blob() || value.bytes().size() == ByteSize(value.type);
    return Operand{value.type, at_hand ? &value : nullptr};
  };
  for (const auto& [parameter, bindings] : op.inputs)
    for (const Binding& binding : bindings) {
      std::vector<Operand>& all = operands[parameter];
      if (const auto* value = std::get_if<Value>(&binding)) {
        all.push_back(operand(*value));
        continue;
      }
      const Entry* entry = Find(std::get<std::string>(binding));
      PD_CHECK(entry);
      all.push_back({entry->type->type, entry->value});
    }
  if (IsConstexpr(op))
    for (const auto& [key, value] : op.attributes)
      if (key != "name") operands[key].push_back(operand(value));
  return operands;
}

void CheckProgram(const Program& program) {
  for (const auto& [name, function] : program.functions) {
    if (!IsIdentifier(name))
      throw Fail(ErrorKind::kCorruptFile, "function '{}': its name is not an identifier", name);
    Checker(name).CheckFunction(function);
  }
}

}  // namespace pd::mil
