// The rules that every program must keep, whoever made it.
#pragma once
#include <map>
#include <string>

#include "coreml/mil/infer.h"
#include "coreml/mil/program.h"

namespace pd::mil {

// The names visible at some place of a block, and what they stand for. A view: the program must outlive it.
class Scope {
 public:
  struct Entry {
    const NamedType* type = nullptr;
    const Value* value = nullptr;  // of a constant whose data are at hand
  };
  void Define(const NamedType& type, const Value* value = nullptr) { entries_[type.name] = {&type, value}; }
  const Entry* Find(const std::string& name) const {
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second;
  }
  // An op's parameters with what they are bound to; those kept in attributes (older constexpr forms)
  // included. Names must be defined.
  Operands Resolve(const Operation& op) const;

 private:
  std::map<std::string, Entry> entries_;
};

// Throws kCorruptFile, naming function and op: names that are no identifiers or reserved, used before they
// are defined or defined twice; constants that differ from their type; states used by ops other than
// read_state and write_state; ranks above 5; results that are not what type inference gives. Ops that
// inference does not know, and ops on axes known only at run time, keep their declared types.
void CheckProgram(const Program& program);

}  // namespace pd::mil
