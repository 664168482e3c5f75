// Whatever the bytes, they are a model whose every function plans and runs, or an Error. Bytes changed at
// random hardly ever remain a model; so half of the changes are made to the program instead: to the size of
// an input, or to a number among an op's constants, after which the types of all results are inferred again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "coreml/interpreter/interpreter.h"
#include "coreml/mil/check.h"

namespace {

using namespace pd;

constexpr double kMostWork = 2e7;  // elements, and terms of sums: what one input may cost
constexpr size_t kMostBytes = size_t(16) << 20;

// Gives every weight file constant some bytes; returns whether they are few.
bool Attach(mil::Value& value, std::vector<std::vector<std::byte>>& memory) {
  auto* blob = std::get_if<mil::Blob>(&value.data);
  if (!blob) return true;
  if (value.type.dtype == mil::DataType::kString || mil::ByteSize(value.type) > kMostBytes / 16) return false;
  std::vector<std::byte>& bytes = memory.emplace_back(mil::ByteSize(value.type));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 % 64);
  blob->bytes = bytes;
  return true;
}

bool AttachAll(mil::Block& block, std::vector<std::vector<std::byte>>& memory) {
  for (mil::Operation& op : block.operations) {
    for (auto& [key, value] : op.attributes)
      if (!Attach(value, memory)) return false;
    for (auto& [parameter, bindings] : op.inputs)
      for (mil::Binding& binding : bindings)
        if (auto* value = std::get_if<mil::Value>(&binding); value && !Attach(*value, memory)) return false;
    for (mil::Block& inner : op.blocks)
      if (!AttachAll(inner, memory)) return false;
  }
  return true;
}

double Count(const mil::TensorType& type) {
  double count = 1;
  for (int64_t d : type.shape) count *= double(std::max<int64_t>(d, 1));
  return count;
}

double WorkOf(const mil::Function& function) {
  mil::Scope scope;
  double work = 0;
  for (const mil::NamedType& input : function.inputs) {
    scope.Define(input);
    work += Count(input.type);
  }
  for (const mil::Operation& op : function.body.operations) {
    double operands = 1, results = 1;
    for (const auto& [parameter, all] : scope.Resolve(op))
      for (const mil::Operand& operand : all) operands = std::max(operands, Count(operand.type));
    for (const mil::NamedType& output : op.outputs) {
      results = std::max(results, Count(output.type));
      scope.Define(output);
    }
    const bool sums = op.type == "conv" || op.type == "linear" || op.type == "matmul" ||
                      op.type == "einsum" || op.type == "scaled_dot_product_attention";
    work += sums ? operands * results : operands + results;
  }
  return work;
}

void RunAll(Interpreter& interpreter, const Package& package) {
  const ProgramStates states = interpreter.MakeStates();
  for (const auto& [name, function] : package.program.functions) {
    std::vector<std::vector<std::byte>> memory;
    InputTensors inputs;
    for (const mil::NamedType& input : interpreter.Inputs(name)) {
      std::vector<std::byte>& bytes = memory.emplace_back(mil::ByteSize(input.type));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i % 4 == 0 ? i / 4 % 5 : 0);
      inputs[input.name] = {input.type, {}, bytes.data()};
    }
    try {
      interpreter.Run(name, inputs, &states);
    } catch (const Error&) {  // a value that an op cannot take; the next function may do
      continue;
    }
  }
}

// Declares what the ops give now. Ops that inference does not know keep their types.
void InferAgain(mil::Function& function) {
  mil::Scope scope;
  for (const mil::NamedType& input : function.inputs) scope.Define(input);
  for (mil::Operation& op : function.body.operations) {
    if (op.type == "const") {
      const mil::Value& value = op.attributes.at("val");
      scope.Define(op.outputs.at(0), value.blob() ? nullptr : &value);
      continue;
    }
    if (mil::IsKnownOp(op.type)) {
      const std::vector<mil::TensorType> types = mil::InferOutputs(op.type, scope.Resolve(op));
      for (size_t i = 0; i < std::min(types.size(), op.outputs.size()); ++i) {
        mil::TensorType& declared = op.outputs[i].type;
        const mil::Dims before = declared.shape;
        declared = types[i];
        for (size_t d = 0; d < declared.shape.size(); ++d)
          if (declared.shape[d] == mil::kUnknown) declared.shape[d] = d < before.size() ? before[d] : 1;
      }
    }
    for (const mil::NamedType& output : op.outputs) scope.Define(output);
  }
}

// Changes one thing. Throws Error when the program is none any more.
void Change(mil::Function& function, std::mt19937& random) {
  const auto below = [&](size_t n) { return size_t(random() % std::max<size_t>(n, 1)); };
  if (!function.inputs.empty() && below(3) == 0) {
    mil::Dims& shape = function.inputs[below(function.inputs.size())].type.shape;
    if (!shape.empty()) shape[below(shape.size())] = int64_t(1 + below(40));
  } else {
    std::vector<std::vector<std::byte>*> numbers;
    for (mil::Operation& op : function.body.operations)
      if (op.type == "const")
        if (auto* bytes = std::get_if<std::vector<std::byte>>(&op.attributes.at("val").data);
            bytes && op.attributes.at("val").type.dtype == mil::DataType::kI32 && bytes->size() >= 4)
          numbers.push_back(bytes);
    if (numbers.empty()) return;
    std::vector<std::byte>& bytes = *numbers[below(numbers.size())];
    const int32_t few = int32_t(below(12)) - 4, any = int32_t(random());
    std::memcpy(bytes.data() + below(bytes.size() / 4) * 4, below(8) == 0 ? &any : &few, 4);
  }
  InferAgain(function);
}

// Programs are written with inputs and outputs that are not empty.
bool CanBeWritten(const mil::Function& function) {
  const auto empty = [](const mil::NamedType& t) {
    return std::any_of(t.type.shape.begin(), t.type.shape.end(), [](int64_t d) { return d <= 0; });
  };
  if (std::any_of(function.inputs.begin(), function.inputs.end(), empty)) return false;
  for (const mil::Operation& op : function.body.operations)
    for (const mil::NamedType& result : op.outputs) {
      const auto& outputs = function.body.outputs;
      if (std::find(outputs.begin(), outputs.end(), result.name) != outputs.end() && empty(result))
        return false;
    }
  return true;
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::mt19937 random(seed);
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  try {
    Package package = ParseModel(std::string(reinterpret_cast<const char*>(data), size), "input");
    for (auto& [name, function] : package.program.functions) {
      Change(function, random);
      if (!CanBeWritten(function)) return LLVMFuzzerMutate(data, size, max_size);
    }
    mil::CheckProgram(package.program);
    const std::string bytes = SerialiseModel(package);
    if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
    std::ranges::copy(bytes, data);
    return bytes.size();
  } catch (const Error&) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto pool = std::make_shared<ThreadPool>(1);
  try {
    Package package = ParseModel(std::string(reinterpret_cast<const char*>(data), size), "input");
    std::vector<std::vector<std::byte>> weights;
    double work = 0;
    for (auto& [name, function] : package.program.functions) {
      if (!AttachAll(function.body, weights)) return 0;
      work += WorkOf(function);
    }
    if (work > kMostWork) return 0;
    mil::CheckProgram(package.program);  // again: more is known now
    for (const bool plain : {false, true}) {
      Interpreter interpreter(package, pool, {plain, kMostBytes});
      RunAll(interpreter, package);
    }
  } catch (const Error&) {
    return 0;
  }
  return 0;
}
