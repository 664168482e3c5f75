#include "coreml/package/interface.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pd {
namespace {

using mil::DataType;
using Features = google::protobuf::RepeatedPtrField<proto::FeatureDescription>;
using Dims = google::protobuf::RepeatedField<int64_t>;

constexpr int kFloat16Version = 7, kInt8Version = 10, kFunctionsVersion = 9, kStatesVersion = 9;

constexpr std::array<std::pair<ArrayDataType, DataType>, 5> kArrayTypes = {{
    {ArrayDataType::kFloat16, DataType::kF16},
    {ArrayDataType::kFloat32, DataType::kF32},
    {ArrayDataType::kDouble, DataType::kF64},
    {ArrayDataType::kInt8, DataType::kI8},
    {ArrayDataType::kInt32, DataType::kI32},
}};

std::optional<DataType> ProgramType(int array_type) {
  for (const auto& [array, dtype] : kArrayTypes)
    if (int(array) == array_type) return dtype;
  return std::nullopt;
}

// One function's features against its program.
class Checker {
 public:
  Checker(int version, std::string where) : version_(version), where_(std::move(where)) {}

  void Check(const Features& inputs, const Features& outputs, const Features& states,
             const mil::Function& function) {
    std::map<std::string, mil::NamedType> declared, results;
    for (const mil::NamedType& input : function.inputs) declared[input.name] = input;
    for (const mil::Operation& op : function.body.operations)
      for (const mil::NamedType& output : op.outputs) results[output.name] = output;
    for (const mil::NamedType& input : function.inputs) results.try_emplace(input.name, input);

    for (const auto& f : inputs) CheckInput(f, Take(f, declared, "input", false));
    for (const auto& f : states) CheckState(f, Take(f, declared, "state", true));
    if (!declared.empty()) throw Bad(declared.begin()->first, "an input of the program has no description");
    CheckOutputs(outputs, function.body.outputs, results);
  }

 private:
  template <class... Args>
  Error Bad(const std::string& feature, fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorKind::kCorruptFile, "{}: feature '{}': {}", where_, feature,
                fmt::format(format, std::forward<Args>(args)...));
  }

  mil::TensorType Take(const proto::FeatureDescription& f, std::map<std::string, mil::NamedType>& declared,
                       const char* kind, bool state) {
    RequireKnownFields(f, where_);
    RequireKnownFields(f.type(), where_);
    if (f.name().empty()) throw Bad("", "an {} without a name", kind);
    const auto it = declared.find(f.name());
    if (it == declared.end())
      throw Bad(f.name(), "described as {}, but no (or twice an) input of the program", kind);
    if (it->second.state != state)
      throw Bad(f.name(), "described as {}, but the program has another kind", kind);
    const mil::TensorType type = it->second.type;
    declared.erase(it);
    return type;
  }

  void CheckDataType(const proto::FeatureDescription& f, const proto::ArrayFeatureType& array) const {
    const auto dtype = ProgramType(array.data_type());
    if (!dtype) throw Bad(f.name(), "data type {}", array.data_type());
    if (dtype == DataType::kF16 && version_ < kFloat16Version)
      throw Bad(f.name(), "float16 needs specification version {}", kFloat16Version);
    if (dtype == DataType::kI8 && version_ < kInt8Version)
      throw Bad(f.name(), "int8 needs specification version {}", kInt8Version);
  }

  // Shape and type of the description against those of the program.
  void CheckSame(const proto::FeatureDescription& f, const proto::ArrayFeatureType& array,
                 const mil::TensorType& type) const {
    if (ProgramType(array.data_type()) != type.dtype)
      throw Bad(f.name(), "described with data type {}, the program has {}", array.data_type(),
                mil::ToString(type));
    bool same = array.shape_size() == int(type.shape.size());
    for (int i = 0; same && i < array.shape_size(); ++i)
      same = type.shape[size_t(i)] == mil::kUnknown || type.shape[size_t(i)] == array.shape(i);
    if (!same) throw Bad(f.name(), "described with another shape than {}", mil::ToString(type));
  }

  const proto::ArrayFeatureType& Array(const proto::FeatureDescription& f) const {
    if (f.type().type_case() != proto::FeatureType::kMultiArrayType)
      throw Fail(ErrorKind::kUnsupported, "{}: feature '{}' is not a multi-array", where_, f.name());
    RequireKnownFields(f.type().multi_array_type(), where_);
    return f.type().multi_array_type();
  }

  void CheckInput(const proto::FeatureDescription& f, const mil::TensorType& type) const {
    const proto::ArrayFeatureType& array = Array(f);
    CheckDataType(f, array);
    if (array.shape().empty()) throw Bad(f.name(), "no shape");
    for (int64_t d : array.shape())
      if (d < 1) throw Bad(f.name(), "an axis of {}", d);
    CheckFlexibility(f, array);
    CheckDefault(f, array);
    CheckSame(f, array, type);
    const bool flexible =
        array.shape_flexibility_case() != proto::ArrayFeatureType::SHAPE_FLEXIBILITY_NOT_SET;
    const bool open = std::find(type.shape.begin(), type.shape.end(), mil::kUnknown) != type.shape.end();
    if (open && !flexible)
      throw Bad(f.name(), "an axis is flexible in the program but not in the description");
  }

  void CheckFlexibility(const proto::FeatureDescription& f, const proto::ArrayFeatureType& array) const {
    const auto same = [&](const Dims& shape) {
      return std::equal(shape.begin(), shape.end(), array.shape().begin(), array.shape().end());
    };
    if (array.has_enumerated_shapes()) {
      RequireKnownFields(array.enumerated_shapes(), where_);
      bool found = false;
      for (const auto& s : array.enumerated_shapes().shapes()) {
        RequireKnownFields(s, where_);
        for (int64_t d : s.shape())
          if (d < 1) throw Bad(f.name(), "an enumerated axis of {}", d);
        found = found || same(s.shape());
      }
      if (!found) throw Bad(f.name(), "the default shape is not among the enumerated ones");
    }
    if (!array.has_shape_range()) return;
    const auto& ranges = array.shape_range().size_ranges();
    if (ranges.size() != array.shape_size())
      throw Bad(f.name(), "{} ranges for rank {}", ranges.size(), array.shape_size());
    for (int i = 0; i < ranges.size(); ++i) {
      RequireKnownFields(ranges[i], where_);
      if (ranges[i].upper_bound() < 0) throw Bad(f.name(), "axis {} has no upper bound", i);
      if (uint64_t(array.shape(i)) < ranges[i].lower_bound() || array.shape(i) > ranges[i].upper_bound())
        throw Bad(f.name(), "axis {} of the default shape is outside its range", i);
    }
  }

  void CheckDefault(const proto::FeatureDescription& f, const proto::ArrayFeatureType& array) const {
    using Array = proto::ArrayFeatureType;
    const auto dtype = ProgramType(array.data_type());
    bool fits = true;
    switch (array.default_optional_value_case()) {
      case Array::kIntDefaultValue:
        fits = dtype == DataType::kI32 || dtype == DataType::kI8;
        break;
      case Array::kFloatDefaultValue:
        fits = dtype == DataType::kF32 || dtype == DataType::kF16;
        break;
      case Array::kDoubleDefaultValue:
        fits = dtype == DataType::kF64;
        break;
      case Array::DEFAULT_OPTIONAL_VALUE_NOT_SET:
        break;
    }
    if (!fits) throw Bad(f.name(), "the default value has another type");
    if (f.type().is_optional())
      throw Fail(ErrorKind::kUnsupported, "{}: feature '{}' is optional", where_, f.name());
  }

  void CheckState(const proto::FeatureDescription& f, const mil::TensorType& type) const {
    if (version_ < kStatesVersion)
      throw Bad(f.name(), "states need specification version {}", kStatesVersion);
    if (f.type().type_case() != proto::FeatureType::kStateType)
      throw Bad(f.name(), "described as state with another type");
    RequireKnownFields(f.type().state_type(), where_);
    const proto::ArrayFeatureType& array = f.type().state_type().array_type();
    RequireKnownFields(array, where_);
    CheckDataType(f, array);
    if (type.dtype != DataType::kF16 && !(type.dtype == DataType::kI8 && version_ >= kInt8Version))
      throw Bad(f.name(), "a state must be float16");
    if (array.shape().empty() || f.type().is_optional() ||
        array.shape_flexibility_case() != proto::ArrayFeatureType::SHAPE_FLEXIBILITY_NOT_SET ||
        array.default_optional_value_case() != proto::ArrayFeatureType::DEFAULT_OPTIONAL_VALUE_NOT_SET)
      throw Bad(f.name(), "a state needs one fixed shape, no default, and cannot be optional");
    for (int64_t d : array.shape())
      if (d < 1) throw Bad(f.name(), "an axis of {}", d);
    CheckSame(f, array, type);
  }

  void CheckOutputs(const Features& outputs, const std::vector<std::string>& names,
                    const std::map<std::string, mil::NamedType>& results) const {
    std::set<std::string> described;
    for (const auto& f : outputs) {
      RequireKnownFields(f, where_);
      RequireKnownFields(f.type(), where_);
      if (!described.insert(f.name()).second) throw Bad(f.name(), "described twice as output");
      if (std::find(names.begin(), names.end(), f.name()) == names.end())
        throw Bad(f.name(), "described as output, but the program does not return it");
      const auto result = results.find(f.name());
      if (result == results.end()) throw Bad(f.name(), "no op defines this output");
      const proto::ArrayFeatureType& array = Array(f);
      CheckDataType(f, array);
      if (f.type().is_optional()) throw Bad(f.name(), "an output cannot be optional");
      if (!array.shape().empty())
        CheckSame(f, array, result->second.type);
      else if (ProgramType(array.data_type()) != result->second.type.dtype)
        throw Bad(f.name(), "described with another data type than {}", mil::ToString(result->second.type));
    }
    if (described.size() != names.size())
      throw Bad("", "{} outputs are described, but the program returns {}", described.size(), names.size());
  }

  int version_;
  std::string where_;
};

void CheckUnpredicted(const std::string& feature, const std::string& probabilities,
                      const std::string& where) {
  if (!feature.empty() || !probabilities.empty())
    throw Fail(ErrorKind::kUnsupported, "{}: a classifier", where);
}

}  // namespace

ArrayDataType ArrayTypeOf(DataType dtype) {
  const auto it =
      std::find_if(kArrayTypes.begin(), kArrayTypes.end(), [&](const auto& t) { return t.second == dtype; });
  PD_CHECK(it != kArrayTypes.end());
  return it->first;
}

void CheckInterface(const proto::ModelDescription& description, const Package& package,
                    const std::string& where) {
  const auto& functions = package.program.functions;
  const int version = package.specification_version;
  RequireKnownFields(description, where);
  RequireKnownFields(description.metadata(), where);
  CheckUnpredicted(description.predicted_feature_name(), description.predicted_probabilities_name(), where);
  const auto require = [&](bool ok, const std::string& otherwise) {
    if (!ok) throw Fail(ErrorKind::kCorruptFile, "{}: description: {}", where, otherwise);
  };
  if (description.functions().empty()) {
    require(description.default_function_name().empty(), "a default function without functions");
    require(functions.size() == 1 && functions.contains("main"),
            "top-level features need exactly one function, named main");
    Checker(version, where + ": main")
        .Check(description.input(), description.output(), description.state(), functions.at("main"));
    return;
  }
  require(version >= kFunctionsVersion,
          fmt::format("functions need specification version {}", kFunctionsVersion));
  require(description.input().empty() && description.output().empty() && description.state().empty(),
          "top-level features are not allowed beside functions");
  std::set<std::string> described;
  for (const auto& f : description.functions()) {
    RequireKnownFields(f, where);
    CheckUnpredicted(f.predicted_feature_name(), f.predicted_probabilities_name(), where);
    require(functions.contains(f.name()), fmt::format("function '{}' is not in the program", f.name()));
    require(described.insert(f.name()).second, fmt::format("function '{}' is described twice", f.name()));
    Checker(version, where + ": " + f.name()).Check(f.input(), f.output(), f.state(), functions.at(f.name()));
  }
  require(described.size() == functions.size(), "a function of the program is not described");
  require(functions.contains(description.default_function_name()),
          fmt::format("the default function '{}' is not one of them", description.default_function_name()));
}

}  // namespace pd
