#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "coreml/package/interface.h"
#include "coreml/package/model_proto.h"

namespace pd {
namespace {

using mil::DataType;

void SetType(const mil::TensorType& type, proto::TensorType& out) {
  out.set_data_type(int(type.dtype));
  if (!type.shape.empty()) out.set_rank(int64_t(type.shape.size()));
  for (int64_t d : type.shape) {
    proto::Dimension* dimension = out.add_dimensions();
    if (d == mil::kUnknown)
      dimension->mutable_unknown();
    else if (auto* constant = dimension->mutable_constant(); d != 0)
      constant->set_size(uint64_t(d));
  }
}

void SetType(const mil::NamedType& named, proto::NamedValueType& out) {
  out.set_name(named.name);
  proto::ValueType* type = out.mutable_type();
  if (named.state) type = type->mutable_state_type()->mutable_wrapped_type();
  SetType(named.type, *type->mutable_tensor_type());
}

template <class T, class Field>
void AddAll(std::span<const std::byte> bytes, Field* field) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes.data() + at, sizeof element);
    field->Add(element);
  }
}

void SetTensor(const mil::Value& value, proto::TensorValue& out) {
  if (value.type.dtype == DataType::kString) {
    auto* strings = out.mutable_strings();
    for (const std::string& s : mil::ReadStrings(value)) strings->add_values(s);
    return;
  }
  const std::span<const std::byte> bytes = value.bytes();
  switch (value.type.dtype) {
    case DataType::kBool:
      return AddAll<bool>(bytes, out.mutable_bools()->mutable_values());
    case DataType::kF32:
      return AddAll<float>(bytes, out.mutable_floats()->mutable_values());
    case DataType::kF64:
      return AddAll<double>(bytes, out.mutable_doubles()->mutable_values());
    case DataType::kI16:
      return AddAll<int16_t>(bytes, out.mutable_ints()->mutable_values());
    case DataType::kU16:
      return AddAll<uint16_t>(bytes, out.mutable_ints()->mutable_values());
    case DataType::kI32:
      return AddAll<int32_t>(bytes, out.mutable_ints()->mutable_values());
    case DataType::kI64:
    case DataType::kU64:
      return AddAll<int64_t>(bytes, out.mutable_long_ints()->mutable_values());
    default: {  // raw bytes, including half floats
      auto* raw = out.mutable_bytes();
      if (!bytes.empty()) raw->set_values(bytes.data(), bytes.size());
    }
  }
}

void SetValue(const mil::Value& value, proto::Value& out) {
  SetType(value.type, *out.mutable_type()->mutable_tensor_type());
  if (const mil::Blob* blob = value.blob()) {
    out.mutable_blob_file_value()->set_file_name(blob->file);
    out.mutable_blob_file_value()->set_offset(blob->offset);
  } else {
    SetTensor(value, *out.mutable_immediate_value()->mutable_tensor());
  }
}

// A new entry of a map; callers go through sorted maps, so the bytes are reproducible.
template <class Entries>
auto& AddEntry(const std::string& key, Entries* entries) {
  auto* entry = entries->Add();
  entry->set_key(key);
  return *entry->mutable_value();
}

void SetBlock(const mil::Block& block, proto::Block& out);

void SetOperation(const mil::Operation& op, proto::Operation& out) {
  out.set_type(op.type);
  for (const auto& [parameter, bindings] : op.inputs) {
    proto::Argument& argument = AddEntry(parameter, out.mutable_inputs());
    for (const mil::Binding& binding : bindings) {
      if (const auto* name = std::get_if<std::string>(&binding))
        argument.add_arguments()->set_name(*name);
      else
        SetValue(std::get<mil::Value>(binding), *argument.add_arguments()->mutable_value());
    }
  }
  for (const mil::NamedType& output : op.outputs) SetType(output, *out.add_outputs());
  for (const mil::Block& block : op.blocks) SetBlock(block, *out.add_blocks());
  for (const auto& [key, value] : op.attributes) SetValue(value, AddEntry(key, out.mutable_attributes()));
}

void SetBlock(const mil::Block& block, proto::Block& out) {
  for (const mil::NamedType& input : block.inputs) SetType(input, *out.add_inputs());
  for (const mil::Operation& op : block.operations) SetOperation(op, *out.add_operations());
  for (const std::string& output : block.outputs) out.add_outputs(output);
}

void SetBuildInfo(const std::map<std::string, std::string>& info, proto::Value& out) {
  const mil::TensorType string_type{DataType::kString, {}};
  proto::DictionaryType* type = out.mutable_type()->mutable_dictionary_type();
  SetType(string_type, *type->mutable_key_type()->mutable_tensor_type());
  SetType(string_type, *type->mutable_value_type()->mutable_tensor_type());
  proto::DictionaryValue* pairs = out.mutable_immediate_value()->mutable_dictionary();
  for (const auto& [key, value] : info) {
    proto::DictionaryValue::Pair* pair = pairs->add_values();
    SetValue(mil::Scalar(key), *pair->mutable_key());
    SetValue(mil::Scalar(value), *pair->mutable_value());
  }
}

void SetArray(const mil::NamedType& feature, proto::ArrayFeatureType& out) {
  out.set_data_type(int(ArrayTypeOf(feature.type.dtype)));
  for (int64_t d : feature.type.shape) {
    if (d < 1)  // possible in packages that others wrote; they can be read and listed
      throw Fail(ErrorKind::kUnsupported,
                 "'{}' is {}: written packages need inputs and outputs of fixed sizes, at least 1",
                 feature.name, ToString(feature.type));
    out.add_shape(d);
  }
}

// A function's output: the result of one of its ops, or one of its inputs.
const mil::NamedType& FindOutput(const std::string& name, const mil::Function& function) {
  for (const mil::Operation& op : function.body.operations)
    for (const mil::NamedType& output : op.outputs)
      if (output.name == name) return output;
  const auto input = std::ranges::find(function.inputs, name, &mil::NamedType::name);
  PD_CHECK(input != function.inputs.end());
  return *input;
}

// Description: ModelDescription or FunctionDescription.
template <class Description>
void SetFeatures(const mil::Function& function, Description& out) {
  for (const mil::NamedType& input : function.inputs) {
    proto::FeatureDescription* feature = input.state ? out.add_state() : out.add_input();
    feature->set_name(input.name);
    proto::FeatureType* type = feature->mutable_type();
    SetArray(input, input.state ? *type->mutable_state_type()->mutable_array_type()
                                : *type->mutable_multi_array_type());
  }
  for (const std::string& name : function.body.outputs) {
    proto::FeatureDescription* feature = out.add_output();
    feature->set_name(name);
    SetArray(FindOutput(name, function), *feature->mutable_type()->mutable_multi_array_type());
  }
}

}  // namespace

proto::Model ToProto(const Package& package) {
  proto::Model model;
  model.set_specification_version(package.specification_version);
  proto::ModelDescription* description = model.mutable_description();
  proto::MilProgram* program = model.mutable_ml_program();
  program->set_version(1);
  for (const auto& [name, function] : package.program.functions) {
    proto::Function& out = AddEntry(name, program->mutable_functions());
    for (const mil::NamedType& input : function.inputs) SetType(input, *out.add_inputs());
    out.set_opset(function.opset);
    SetBlock(function.body, AddEntry(function.opset, out.mutable_block_specializations()));
    if (package.default_function.empty()) {
      SetFeatures(function, *description);
      continue;
    }
    proto::FunctionDescription* features = description->add_functions();
    features->set_name(name);
    SetFeatures(function, *features);
  }
  const bool single = package.default_function.empty();
  PD_CHECK(single ? package.program.functions.size() == 1 && package.program.functions.contains("main")
                  : package.program.functions.contains(package.default_function));
  if (!single) description->set_default_function_name(package.default_function);
  if (!package.program.build_info.empty())
    SetBuildInfo(package.program.build_info, AddEntry("buildInfo", program->mutable_attributes()));
  for (const auto& [key, value] : package.metadata) {
    proto::StringEntry* entry = description->mutable_metadata()->add_user_defined();
    entry->set_key(key);
    entry->set_value(value);
  }
  return model;
}

}  // namespace pd
