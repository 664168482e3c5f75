// A Core ML program in memory: built by the lowering, stored by the package writer, returned by the package
// reader and executed by the interpreter.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"

namespace pd::mil {

// Numbered as in the serialised format.
enum class DataType : uint8_t {
  kBool = 1,
  kString = 2,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kI8 = 21,
  kI16 = 22,
  kI32 = 23,
  kI64 = 24,
  kI4 = 25,
  kU8 = 31,
  kU16 = 32,
  kU32 = 33,
  kU64 = 34,
  kU4 = 35,
  kU2 = 36,
  kU1 = 37,
  kU6 = 38,
  kU3 = 39,
  kF8E4M3 = 40,
  kF8E5M2 = 41,
};

// The name in MIL text and in dtype parameters of ops: "fp16", "int32", "bool". nullptr if the number is not
// a DataType.
const char* Name(DataType type);
std::optional<DataType> DataTypeOf(std::string_view name);
// Bits of one element in memory and in the weight file; 8 for bool, 0 for string.
int Bits(DataType type);
bool IsFloat(DataType type);

// Sizes of the axes, outermost first; empty for a scalar. kUnknown in programs with flexible shapes, which
// this engine reads and lists but does not execute.
using Dims = std::vector<int64_t>;
inline constexpr int64_t kUnknown = -1;

Dims DenseStrides(const Dims& shape);  // row-major, in elements; every axis known

struct TensorType {
  DataType dtype = DataType::kF16;
  Dims shape;
  bool operator==(const TensorType&) const = default;
};
int64_t Elements(const TensorType& type);      // every axis known
size_t ByteSize(const TensorType& type);       // packed, rounded up to a whole byte; not for strings
std::string ToString(const TensorType& type);  // "tensor<fp16, [1, 64, 1, 8]>", "int32" for a scalar

// A named tensor, or with `state` a state that holds one: read by read_state, replaced by write_state.
struct NamedType {
  std::string name;
  TensorType type;
  bool state = false;
  bool operator==(const NamedType&) const = default;
};

// A tensor in the weight file. The program stores `file` and `offset` (of the metadata record, not of the
// data). `bytes` is the data: a view of the mapped file, kept alive by `owner`; empty in a program that is
// about to be written, whose data were written to the file separately.
struct Blob {
  std::string file;
  uint64_t offset = 0;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  bool operator==(const Blob& other) const { return file == other.file && offset == other.offset; }
};

// A constant tensor. Numbers are packed little-endian in row-major order: a bool is one byte, 0 or 1;
// elements smaller than a byte fill bytes from the lowest bit without padding between rows.
struct Value {
  TensorType type;
  std::variant<std::vector<std::byte>, std::vector<std::string>, Blob> data;
  bool operator==(const Value&) const = default;

  // Numbers, immediate or in the weight file. PD_CHECKs that it holds no strings.
  std::span<const std::byte> bytes() const;
  const Blob* blob() const { return std::get_if<Blob>(&data); }
};

// Immediate values. A vector has rank 1, a scalar rank 0.
Value Scalar(bool value);
Value Scalar(int32_t value);
Value Scalar(const char* value);
Value Scalar(std::string value);
Value ScalarF16(float value);  // rounded to nearest even
Value Vector(const std::vector<int32_t>& values);
Value Vector(const std::vector<bool>& values);
Value Packed(TensorType type, std::vector<std::byte> bytes);  // PD_CHECKs the size

// Elements of any integer type or bool; of any float type of 16 bits or more; of strings. PD_CHECKs the type.
std::vector<int64_t> ReadInts(const Value& value);
std::vector<float> ReadFloats(const Value& value);
const std::vector<std::string>& ReadStrings(const Value& value);

// The operand of a parameter: the name of an earlier result, function input or state, or a constant.
using Binding = std::variant<std::string, Value>;

struct Block;

// `type` is the op's name: "const", "conv", "constexpr_lut_to_dense". `inputs` holds lists, because concat
// and similar ops take several tensors under one parameter. A const has no inputs; its value is attribute
// "val". The ios16 forms of constexpr ops have operands in attributes, the ios18 forms in inputs (mostly
// bound to constants). Attribute "name" is the op's own name.
struct Operation {
  std::string type;
  std::map<std::string, std::vector<Binding>> inputs;
  std::vector<NamedType> outputs;  // none for write_state
  std::vector<Block> blocks;       // of cond and while_loop
  std::map<std::string, Value> attributes;
  bool operator==(const Operation&) const;

  // The first binding of a parameter; nullptr if not given.
  const Binding* Find(std::string_view parameter) const;
};

struct Block {
  std::vector<NamedType> inputs;      // none for a function's own block
  std::vector<Operation> operations;  // in order of execution; every name is defined once and before its use
  std::vector<std::string> outputs;
  bool operator==(const Block&) const = default;
};

struct Function {
  std::vector<NamedType> inputs;
  std::string opset;  // "CoreML8"
  Block body;
  bool operator==(const Function&) const = default;
};

struct Program {
  std::map<std::string, Function> functions;
  std::map<std::string, std::string> build_info;  // the tools that made it; may be empty
  bool operator==(const Program&) const = default;
};

// MIL text, in the style of the listings in models compiled by Apple's compiler. Constants in the weight file
// are shown by their place; long immediate ones are shortened.
std::string ToText(const Program& program);
std::string ToText(const std::string& name, const Function& function);

}  // namespace pd::mil
