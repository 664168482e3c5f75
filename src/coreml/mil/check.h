// The rules that every program must follow, whoever made it.
#pragma once
#include <map>
#include <string>

#include "coreml/mil/infer.h"
#include "coreml/mil/program.h"

namespace pd::mil {

// The names visible at a place in a block, and what they stand for. A view: the program must outlive it.
class Scope {
 public:
  struct Entry {
    const NamedType* type = nullptr;
    const Value* value = nullptr;  // of a constant with available data
  };
  void Define(const NamedType& type, const Value* value = nullptr) { entries_[type.name] = {&type, value}; }
  const Entry* Find(const std::string& name) const {
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second;
  }
  // An op's parameters with their operands, including those kept in attributes (older constexpr forms). Names
  // must be defined.
  Operands Resolve(const Operation& op) const;

 private:
  std::map<std::string, Entry> entries_;
};

// Throws kCorruptFile, naming function and op, for: invalid or reserved identifiers; names used before their
// definition or defined twice; constants that differ from their type; states used by ops other than
// read_state and write_state; ranks above 5; results that differ from type inference. Ops unknown to
// inference, and ops on axes known only at run time, keep their declared types.
void CheckProgram(const Program& program);

}  // namespace pd::mil
