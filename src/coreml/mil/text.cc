#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "coreml/mil/program.h"

namespace pd::mil {
namespace {

constexpr size_t kMostShown = 16;  // elements of an immediate value

std::string Quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (uint8_t(c) < 0x20)
      result += fmt::format("\\x{:02x}", uint8_t(c));
    else
      result += c;
  }
  return result + '"';
}

// Hexadecimal floats are exact and the same with every standard library.
std::string Number(float f) { return std::isfinite(f) ? fmt::format("{:a}", f) : fmt::format("{}", f); }

std::vector<std::string> Elements(const Value& value) {
  std::vector<std::string> result;
  if (value.type.dtype == DataType::kString) {
    for (const std::string& s : ReadStrings(value)) result.push_back(Quoted(s));
  } else if (value.type.dtype == DataType::kBool) {
    for (int64_t v : ReadInts(value)) result.emplace_back(v ? "true" : "false");
  } else if (IsFloat(value.type.dtype) && Bits(value.type.dtype) >= 16) {
    for (float v : ReadFloats(value)) result.push_back(Number(v));
  } else if (IsFloat(value.type.dtype)) {
    for (std::byte b : value.bytes()) result.push_back(fmt::format("0x{:02x}", uint8_t(b)));
  } else {
    for (int64_t v : ReadInts(value)) result.push_back(fmt::format("{}", v));
  }
  return result;
}

std::string Text(const Value& value) {
  const std::string type = ToString(value.type);
  if (const Blob* blob = value.blob())
    return fmt::format("{}(BLOBFILE(path = string({}), offset = uint64({})))", type, Quoted(blob->file),
                       blob->offset);
  std::vector<std::string> elements = Elements(value);
  if (value.type.shape.empty()) return fmt::format("{}({})", type, elements.at(0));
  if (elements.size() > kMostShown) {
    const size_t more = elements.size() - kMostShown;
    elements.resize(kMostShown);
    elements.push_back(fmt::format("... {} more", more));
  }
  return fmt::format("{}([{}])", type, fmt::join(elements, ", "));
}

std::string Text(const Binding& binding) {
  if (const auto* name = std::get_if<std::string>(&binding)) return *name;
  return Text(std::get<Value>(binding));
}

std::string Text(const NamedType& named) {
  const std::string type = ToString(named.type);
  return named.state ? fmt::format("state<{}> {}", type, named.name) : fmt::format("{} {}", type, named.name);
}

std::string Text(const std::vector<NamedType>& named) {
  std::vector<std::string> parts;
  parts.reserve(named.size());
  for (const NamedType& n : named) parts.push_back(Text(n));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void Append(std::string& out, const Block& block, int depth);

void Append(std::string& out, const Operation& op, int depth) {
  std::vector<std::string> inputs, attributes;
  for (const auto& [parameter, bindings] : op.inputs) {
    std::vector<std::string> parts;
    for (const Binding& b : bindings) parts.push_back(Text(b));
    const std::string list = fmt::format("{}", fmt::join(parts, ", "));
    inputs.push_back(bindings.size() == 1 ? fmt::format("{} = {}", parameter, list)
                                          : fmt::format("{} = ({})", parameter, list));
  }
  for (const auto& [key, value] : op.attributes)
    attributes.push_back(fmt::format("{} = {}", key, Text(value)));
  out.append(size_t(depth) * 4, ' ');
  if (!op.outputs.empty()) out += Text(op.outputs) + " = ";
  out += fmt::format("{}({})[{}]", op.type, fmt::join(inputs, ", "), fmt::join(attributes, ", "));
  for (const Block& block : op.blocks) {
    out += fmt::format(" ({}) {{\n", Text(block.inputs));
    Append(out, block, depth + 1);
    out.append(size_t(depth) * 4, ' ');
    out += fmt::format("}} -> ({})", fmt::join(block.outputs, ", "));
  }
  out += ";\n";
}

void Append(std::string& out, const Block& block, int depth) {
  for (const Operation& op : block.operations) Append(out, op, depth);
}

// "ios18" for "CoreML8": the opset's number and the iOS version that introduced it increase together.
std::string Target(const std::string& opset) {
  for (int v = 5; v <= 8; ++v)
    if (opset == fmt::format("CoreML{}", v)) return fmt::format("ios{}", v + 10);
  return opset == "CoreML9" ? "ios26" : opset;
}

}  // namespace

std::string ToString(const TensorType& type) {
  const char* name = Name(type.dtype);
  PD_CHECK(name);
  if (type.shape.empty()) return name;
  std::vector<std::string> dims;
  for (int64_t d : type.shape) dims.push_back(d == kUnknown ? "?" : fmt::format("{}", d));
  return fmt::format("tensor<{}, [{}]>", name, fmt::join(dims, ", "));
}

std::string ToText(const std::string& name, const Function& function) {
  std::string out = fmt::format("func {}<{}>({}) {{\n", name, Target(function.opset), Text(function.inputs));
  Append(out, function.body, 1);
  return out + fmt::format("}} -> ({});\n", fmt::join(function.body.outputs, ", "));
}

std::string ToText(const Program& program) {
  std::string out = "program(1.0)\n";
  for (const auto& [key, value] : program.build_info)
    out += fmt::format("[{} = {}]\n", Quoted(key), Quoted(value));
  for (const auto& [name, function] : program.functions) out += "\n" + ToText(name, function);
  return out;
}

}  // namespace pd::mil
