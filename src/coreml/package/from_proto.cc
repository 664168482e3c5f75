#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "coreml/package/interface.h"
#include "coreml/package/model_proto.h"

namespace pd {
namespace {

using mil::DataType;

constexpr std::array kOpsets = {"CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9"};  // from version 6

template <class Entry>
using ValueOf = std::remove_cvref_t<decltype(std::declval<const Entry&>().value())>;

// Converts messages and tracks the place in the model for error messages.
class Reader {
 public:
  explicit Reader(std::string where) : place_(std::move(where)) {}

  mil::Program ReadProgram(const proto::MilProgram& in, int specification_version) {
    Known(in);
    Require(in.version() == 1, fmt::format("program version {}, expected 1", in.version()));
    mil::Program program;
    for (const auto& [key, value] : Keyed(in.attributes())) {
      if (key != "buildInfo") throw Unsupported(fmt::format("program attribute '{}'", key));
      const Place place(*this, key);
      program.build_info = ReadBuildInfo(*value);
    }
    for (const auto& [name, function] : Keyed(in.functions())) {
      const Place place(*this, "function " + name);
      program.functions[name] = ReadFunction(*function, specification_version);
    }
    return program;
  }

 private:
  // Appends to the place for the life of the object.
  class Place {
   public:
    Place(Reader& reader, const std::string& name) : reader_(reader), length_(reader.place_.size()) {
      reader.place_ += ": " + name;
    }
    ~Place() { reader_.place_.resize(length_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    Reader& reader_;
    size_t length_;
  };

  Error Corrupt(const std::string& what) const {
    return Fail(ErrorKind::kCorruptFile, "{}: {}", place_, what);
  }
  Error Unsupported(const std::string& what) const {
    return Fail(ErrorKind::kUnsupported, "{}: {} cannot be read", place_, what);
  }
  void Require(bool ok, const std::string& otherwise) const {
    if (!ok) throw Corrupt(otherwise);
  }
  template <class Message>
  void Known(const Message& message) const {
    RequireKnownFields(message, place_);
  }
  // The entries of a map, by key.
  template <class Entry>
  std::map<std::string, const ValueOf<Entry>*> Keyed(
      const google::protobuf::RepeatedPtrField<Entry>& entries) const {
    std::map<std::string, const ValueOf<Entry>*> keyed;
    for (const Entry& entry : entries) {
      Known(entry);
      Require(keyed.try_emplace(entry.key(), &entry.value()).second,
              fmt::format("key '{}' appears twice", entry.key()));
    }
    return keyed;
  }
  template <class Entries>
  void RequireEmpty(const Entries& attributes) const {
    if (!attributes.empty()) throw Unsupported(fmt::format("attribute '{}'", attributes.Get(0).key()));
  }

  mil::Function ReadFunction(const proto::Function& in, int specification_version) {
    Known(in);
    RequireEmpty(in.attributes());
    mil::Function function;
    for (const auto& input : in.inputs()) function.inputs.push_back(ReadNamed(input));
    function.opset = in.opset();
    const auto opset = std::find(kOpsets.begin(), kOpsets.end(), function.opset);
    if (opset == kOpsets.end()) throw Unsupported(fmt::format("opset '{}'", function.opset));
    const int needed = int(opset - kOpsets.begin()) + 6;
    Require(needed <= specification_version,
            fmt::format("opset {} needs specification version {}, the model has {}", function.opset, needed,
                        specification_version));
    const auto blocks = Keyed(in.block_specializations());
    const auto block = blocks.find(function.opset);
    Require(block != blocks.end(), fmt::format("no block for opset {}", function.opset));
    if (blocks.size() != 1) throw Unsupported("a function with several specialisations");
    function.body = ReadBlock(*block->second);
    return function;
  }

  mil::Block ReadBlock(const proto::Block& in) {
    Known(in);
    RequireEmpty(in.attributes());
    mil::Block block;
    for (const auto& input : in.inputs()) block.inputs.push_back(ReadNamed(input));
    block.outputs.assign(in.outputs().begin(), in.outputs().end());
    block.operations.reserve(size_t(in.operations_size()));
    for (int i = 0; i < in.operations_size(); ++i) {
      const proto::Operation& op = in.operations(i);
      const std::string name = op.outputs_size() ? " '" + op.outputs(0).name() + "'" : "";
      const Place place(*this, fmt::format("op {} ({}{})", i, op.type(), name));
      block.operations.push_back(ReadOperation(op));
    }
    return block;
  }

  mil::Operation ReadOperation(const proto::Operation& in) {
    Known(in);
    Require(!in.type().empty(), "no type");
    mil::Operation op;
    op.type = in.type();
    for (const auto& [parameter, argument] : Keyed(in.inputs())) {
      const Place place(*this, parameter);
      Known(*argument);
      std::vector<mil::Binding>& bindings = op.inputs[parameter];
      for (const proto::Binding& binding : argument->arguments()) {
        Known(binding);
        switch (binding.binding_case()) {
          case proto::Binding::kName:
            bindings.emplace_back(binding.name());
            break;
          case proto::Binding::kValue:
            bindings.emplace_back(ReadValue(binding.value()));
            break;
          case proto::Binding::BINDING_NOT_SET:
            throw Corrupt("bound to nothing");
        }
      }
    }
    for (const auto& output : in.outputs()) {
      op.outputs.push_back(ReadNamed(output));
      Require(!op.outputs.back().state, "a result is a state");
    }
    for (const auto& block : in.blocks()) op.blocks.push_back(ReadBlock(block));
    for (const auto& [key, value] : Keyed(in.attributes())) {
      const Place place(*this, key);
      op.attributes[key] = ReadValue(*value);
    }
    return op;
  }

  mil::NamedType ReadNamed(const proto::NamedValueType& in) {
    Known(in);
    const Place place(*this, "'" + in.name() + "'");
    const proto::ValueType* type = &in.type();
    const bool state = type->type_case() == proto::ValueType::kStateType;
    if (state) {
      Known(*type);
      Known(type->state_type());
      type = &type->state_type().wrapped_type();
    }
    return {in.name(), ReadType(*type), state};
  }

  mil::TensorType ReadType(const proto::ValueType& in) {
    Known(in);
    switch (in.type_case()) {
      case proto::ValueType::kTensorType:
        break;
      case proto::ValueType::TYPE_NOT_SET:
        throw Corrupt("a value without a type");
      default:
        throw Unsupported("a list, tuple or dictionary");
    }
    const proto::TensorType& tensor = in.tensor_type();
    Known(tensor);
    RequireEmpty(tensor.attributes());
    const bool is_type =
        tensor.data_type() > 0 && tensor.data_type() < 256 && mil::Name(DataType(tensor.data_type()));
    Require(is_type, fmt::format("data type {}", tensor.data_type()));
    if (tensor.rank() == -1) throw Unsupported("a tensor of unknown rank");
    Require(tensor.rank() == tensor.dimensions_size(),
            fmt::format("rank {} with {} dimensions", tensor.rank(), tensor.dimensions_size()));
    mil::TensorType type{DataType(tensor.data_type()), {}};
    for (const proto::Dimension& d : tensor.dimensions()) type.shape.push_back(ReadDimension(d));
    return type;
  }

  int64_t ReadDimension(const proto::Dimension& in) const {
    Known(in);
    switch (in.dimension_case()) {
      case proto::Dimension::kConstant:
        Known(in.constant());
        Require(in.constant().size() <= INT32_MAX, fmt::format("an axis of {}", in.constant().size()));
        return int64_t(in.constant().size());
      case proto::Dimension::kUnknown:
        Known(in.unknown());
        if (in.unknown().variadic()) throw Unsupported("a variadic axis");
        return mil::kUnknown;
      case proto::Dimension::DIMENSION_NOT_SET:
        break;
    }
    throw Corrupt("an axis without a size");
  }

  mil::Value ReadValue(const proto::Value& in) {
    Known(in);
    mil::Value value;
    value.type = ReadType(in.type());
    int64_t count = 1;
    for (int64_t d : value.type.shape) {
      Require(d != mil::kUnknown, "a constant with an unknown shape");
      count *= std::max<int64_t>(d, 1);
      Require(count <= int64_t(1) << 40, "a constant with an impossible size");
    }
    switch (in.value_case()) {
      case proto::Value::kBlobFileValue: {
        Known(in.blob_file_value());
        Require(value.type.dtype != DataType::kString && value.type.dtype != DataType::kBool,
                "strings and bools cannot be in the weight file");
        value.data = mil::Blob{in.blob_file_value().file_name(), in.blob_file_value().offset(), {}, {}};
        return value;
      }
      case proto::Value::kImmediateValue:
        Known(in.immediate_value());
        if (in.immediate_value().value_case() != proto::ImmediateValue::kTensor)
          throw Unsupported("a value that is not a tensor");
        ReadTensor(in.immediate_value().tensor(), value);
        return value;
      case proto::Value::VALUE_NOT_SET:
        break;
    }
    throw Corrupt("a constant without a value");
  }

  void Stored(const mil::Value& value, const proto::TensorValue& in, proto::TensorValue::ValueCase wanted,
              int64_t elements) const {
    Require(in.value_case() == wanted,
            fmt::format("{} stored in kind {}, expected {}", mil::Name(value.type.dtype),
                        int(in.value_case()), int(wanted)));
    Require(elements == mil::Elements(value.type),
            fmt::format("{} elements for {}", elements, mil::ToString(value.type)));
  }

  // The field holds the elements in integers or floats that are as wide or wider.
  template <class T, class Field>
  void Pack(const Field& field, mil::Value& value) const {
    std::vector<std::byte> bytes;
    bytes.reserve(size_t(field.size()) * sizeof(T));
    for (const auto element : field) {
      if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(element))
        Require(element >= std::numeric_limits<T>::min() && element <= std::numeric_limits<T>::max(),
                fmt::format("{} does not fit {}", element, mil::Name(value.type.dtype)));
      const T packed = T(element);
      const auto raw = std::as_bytes(std::span(&packed, 1));
      bytes.insert(bytes.end(), raw.begin(), raw.end());
    }
    value.data = std::move(bytes);
  }

  void ReadTensor(const proto::TensorValue& in, mil::Value& value) const {
    using Tensor = proto::TensorValue;
    Known(in);
    switch (value.type.dtype) {
      case DataType::kString: {
        Stored(value, in, Tensor::kStrings, in.strings().values_size());
        value.data = std::vector<std::string>(in.strings().values().begin(), in.strings().values().end());
        return;
      }
      case DataType::kBool:
        Stored(value, in, Tensor::kBools, in.bools().values_size());
        return Pack<bool>(in.bools().values(), value);
      case DataType::kF32:
        Stored(value, in, Tensor::kFloats, in.floats().values_size());
        return Pack<float>(in.floats().values(), value);
      case DataType::kF64:
        Stored(value, in, Tensor::kDoubles, in.doubles().values_size());
        return Pack<double>(in.doubles().values(), value);
      case DataType::kI16:
        Stored(value, in, Tensor::kInts, in.ints().values_size());
        return Pack<int16_t>(in.ints().values(), value);
      case DataType::kU16:
        Stored(value, in, Tensor::kInts, in.ints().values_size());
        return Pack<uint16_t>(in.ints().values(), value);
      case DataType::kI32:
        Stored(value, in, Tensor::kInts, in.ints().values_size());
        return Pack<int32_t>(in.ints().values(), value);
      case DataType::kI64:
      case DataType::kU64:
        Stored(value, in, Tensor::kLongInts, in.long_ints().values_size());
        return Pack<int64_t>(in.long_ints().values(), value);
      default:
        break;
    }
    Stored(value, in, Tensor::kBytes, mil::Elements(value.type));
    const std::string& raw = in.bytes().values();
    Require(raw.size() == mil::ByteSize(value.type),
            fmt::format("{} bytes for {}", raw.size(), mil::ToString(value.type)));
    const auto bytes = std::as_bytes(std::span(raw));
    value.data = std::vector<std::byte>(bytes.begin(), bytes.end());
  }

  std::map<std::string, std::string> ReadBuildInfo(const proto::Value& in) {
    Known(in);
    Require(in.immediate_value().value_case() == proto::ImmediateValue::kDictionary, "not a dictionary");
    Known(in.immediate_value());
    Known(in.immediate_value().dictionary());
    std::map<std::string, std::string> info;
    for (const auto& pair : in.immediate_value().dictionary().values()) {
      Known(pair);
      const mil::Value key = ReadValue(pair.key()), value = ReadValue(pair.value());
      const mil::TensorType text{DataType::kString, {}};
      Require(key.type == text && value.type == text, "not a dictionary of strings");
      info[mil::ReadStrings(key).front()] = mil::ReadStrings(value).front();
    }
    return info;
  }

  std::string place_;
};

}  // namespace

Package FromProto(const proto::Model& model, const std::string& where) {
  Package package;
  package.specification_version = model.specification_version();
  if (package.specification_version < 6 || package.specification_version > 10)
    throw Fail(ErrorKind::kUnsupported, "{}: specification version {}, ML Programs have 6 to 10", where,
               package.specification_version);
  if (model.type_case() != proto::Model::kMlProgram)
    throw Fail(ErrorKind::kUnsupported, "{}: holds no ML Program", where);
  RequireKnownFields(model, where);
  if (model.is_updatable()) throw Fail(ErrorKind::kUnsupported, "{}: an updatable model", where);
  package.program = Reader(where).ReadProgram(model.ml_program(), package.specification_version);
  CheckInterface(model.description(), package, where);
  package.default_function = model.description().default_function_name();
  for (const auto& entry : model.description().metadata().user_defined())
    package.metadata[entry.key()] = entry.value();
  return package;
}

}  // namespace pd
