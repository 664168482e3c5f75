// A function as text that does not depend on names, on sharing of constants, or on where data lie.
#pragma once
#include <map>
#include <set>
#include <string>

#include "base/digest.h"
#include "coreml/mil/program.h"

namespace pd::test {

inline std::string CanonicalValue(const mil::Value& value) {
  std::string text = mil::ToString(value.type) + "=";
  if (value.type.dtype == mil::DataType::kString) return text + mil::ReadStrings(value).at(0);
  return text + std::to_string(Digest(value.bytes()));
}

// Each op in order; parameters that are constants show their value, others the op that made them.
inline std::string Canonical(const mil::Function& function) {
  std::map<std::string, std::string> meaning;  // of each name
  std::string text;
  for (const mil::NamedType& input : function.inputs) {
    meaning[input.name] = input.name;
    text += input.name + ": " + mil::ToString(input.type) + "\n";
  }
  int ops = 0;
  for (const mil::Operation& op : function.body.operations) {
    if (op.type == "const") {
      meaning[op.outputs.at(0).name] = CanonicalValue(op.attributes.at("val"));
      continue;
    }
    std::string line = op.type + "(";
    for (const auto& [parameter, bindings] : op.inputs) {
      line += parameter + ":";
      for (const mil::Binding& b : bindings) {
        if (const auto* name = std::get_if<std::string>(&b)) {
          line += " " + meaning.at(*name);
        } else {
          line += " " + CanonicalValue(std::get<mil::Value>(b));
        }
      }
      line += "; ";
    }
    line += ") -> ";
    for (const mil::NamedType& output : op.outputs) line += mil::ToString(output.type);
    if (op.type.starts_with("constexpr_")) {
      meaning[op.outputs.at(0).name] = line;
      continue;
    }
    meaning[op.outputs.at(0).name] = "%" + std::to_string(ops++);
    text += line + "\n";
  }
  for (const std::string& output : function.body.outputs)
    text += "return " + output + "=" + meaning.at(output) + "\n";
  return text;
}

}  // namespace pd::test
