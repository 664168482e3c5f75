// Each test case spoils one thing in a good model; the reader must refuse it and name the place.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "coreml/package/manifest.h"
#include "coreml/package/model_proto.h"
#include "tests/coreml/example.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

struct Case {
  const char* name;
  std::function<void(proto::Model&)> spoil;
  const char* expected;  // part of the message
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

proto::Function& Fn(proto::Model& m) {
  return *m.mutable_ml_program()->mutable_functions(0)->mutable_value();
}
proto::Block& Body(proto::Model& m) { return *Fn(m).mutable_block_specializations(0)->mutable_value(); }
proto::Operation& Op(proto::Model& m, const std::string& type) {
  for (auto& op : *Body(m).mutable_operations())
    if (op.type() == type) return op;
  throw std::logic_error("no op of type " + type);
}
proto::Argument& In(proto::Operation& op, const std::string& parameter) {
  for (auto& entry : *op.mutable_inputs())
    if (entry.key() == parameter) return *entry.mutable_value();
  throw std::logic_error("no parameter " + parameter);
}
proto::Value& Attribute(proto::Operation& op, const std::string& key) {
  for (auto& entry : *op.mutable_attributes())
    if (entry.key() == key) return *entry.mutable_value();
  throw std::logic_error("no attribute " + key);
}
proto::TensorType& Tensor(proto::NamedValueType& named) {
  return *named.mutable_type()->mutable_tensor_type();
}
proto::FunctionDescription& Described(proto::Model& m) {
  return *m.mutable_description()->mutable_functions(0);
}
proto::ArrayFeatureType& Array(proto::FeatureDescription& f) {
  return *f.mutable_type()->mutable_multi_array_type();
}
proto::Operation& WeightConst(proto::Model& m) {
  for (auto& op : *Body(m).mutable_operations())
    if (op.type() == "const" && op.outputs(0).name() == "w_half") return op;
  throw std::logic_error("no weight");
}
proto::Operation& ConstOf(proto::Model& m, int32_t data_type) {  // an immediate constant of this type
  for (auto& op : *Body(m).mutable_operations())
    if (op.type() == "const" && Attribute(op, "val").has_immediate_value() &&
        op.outputs(0).type().tensor_type().data_type() == data_type)
      return op;
  throw std::logic_error("no constant");
}
proto::TensorValue& Immediate(proto::Operation& op) {
  return *Attribute(op, "val").mutable_immediate_value()->mutable_tensor();
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"VersionTooOld", [](auto& m) { m.set_specification_version(5); }, "specification version 5"},
      {"VersionTooNew", [](auto& m) { m.set_specification_version(11); }, "specification version 11"},
      {"VersionBelowOpset", [](auto& m) { m.set_specification_version(8); },
       "CoreML8 needs specification version 9"},
      {"NoProgram", [](auto& m) { m.clear_ml_program(); }, "no ML Program"},
      {"Updatable", [](auto& m) { m.set_is_updatable(true); }, "updatable"},
      {"UnknownField", [](auto& m) { m.mutable_unknown_fields()->append("\x78\x01"); },
       "fields of pd.proto.Model"},
      {"UnknownFieldInOp", [](auto& m) { Op(m, "mul").mutable_unknown_fields()->append("\x78\x01"); },
       "(mul"},
      {"ProgramVersion", [](auto& m) { m.mutable_ml_program()->set_version(2); }, "program version 2"},
      {"ProgramAttribute", [](auto& m) { m.mutable_ml_program()->mutable_attributes(0)->set_key("other"); },
       "program attribute 'other'"},
      {"FunctionTwice",
       [](auto& m) {
         m.mutable_ml_program()->mutable_functions(1)->set_key(m.ml_program().functions(0).key());
       },
       "key 't32' appears twice"},
      {"FunctionNotDescribed", [](auto& m) { m.mutable_description()->mutable_functions()->RemoveLast(); },
       "not described"},
      {"DescribedFunctionMissing", [](auto& m) { Described(m).set_name("other"); },
       "function 'other' is not in"},
      {"DescribedTwice", [](auto& m) { *m.mutable_description()->mutable_functions(1) = Described(m); },
       "function 't32' is described twice"},
      {"DefaultFunctionUnknown", [](auto& m) { m.mutable_description()->set_default_function_name("zz"); },
       "default function 'zz'"},
      {"NoDefaultFunction", [](auto& m) { m.mutable_description()->clear_default_function_name(); },
       "default function ''"},
      {"TopLevelFeature", [](auto& m) { *m.mutable_description()->add_input() = Described(m).input(0); },
       "top-level features"},
      {"Classifier", [](auto& m) { Described(m).set_predicted_feature_name("class"); }, "classifier"},
      {"InputNotDescribed", [](auto& m) { Described(m).clear_input(); }, "'x': an input of the program"},
      {"InputNameDiffers", [](auto& m) { Described(m).mutable_input(0)->set_name("q"); }, "feature 'q'"},
      {"InputTwice", [](auto& m) { *Described(m).add_input() = Described(m).input(0); }, "twice"},
      {"InputShapeDiffers", [](auto& m) { Array(*Described(m).mutable_input(0)).set_shape(3, 33); },
       "another shape than tensor<fp16, [1, 64, 1, 32]>"},
      {"InputRankDiffers", [](auto& m) { Array(*Described(m).mutable_input(0)).add_shape(1); },
       "another shape"},
      {"InputShapeNegative", [](auto& m) { Array(*Described(m).mutable_input(0)).set_shape(3, -32); },
       "an axis of -32"},
      {"InputShapeMissing", [](auto& m) { Array(*Described(m).mutable_input(0)).clear_shape(); }, "no shape"},
      {"InputTypeDiffers", [](auto& m) { Array(*Described(m).mutable_input(0)).set_data_type(0x10020); },
       "data type 65568"},
      {"InputTypeUnknown", [](auto& m) { Array(*Described(m).mutable_input(0)).set_data_type(3); },
       "data type 3"},
      {"InputTypeTooNew", [](auto& m) { Array(*Described(m).mutable_input(0)).set_data_type(0x20008); },
       "int8 needs specification version 10"},
      {"InputIsImage", [](auto& m) { Described(m).mutable_input(0)->mutable_type()->mutable_image_type(); },
       "not a multi-array"},
      {"InputOptional", [](auto& m) { Described(m).mutable_input(0)->mutable_type()->set_is_optional(true); },
       "optional"},
      {"InputIsState",
       [](auto& m) {
         *Described(m).add_state() = Described(m).input(0);
         Described(m).clear_input();
       },
       "another kind"},
      {"DefaultValueOfOtherType",
       [](auto& m) { Array(*Described(m).mutable_input(0)).set_int_default_value(1); }, "default value"},
      {"EnumeratedShapesWithoutDefault",
       [](auto& m) {
         auto* shape = Array(*Described(m).mutable_input(0)).mutable_enumerated_shapes()->add_shapes();
         for (int d : {1, 64, 1, 31}) shape->add_shape(d);
       },
       "not among"},
      {"RangeWithoutBound",
       [](auto& m) {
         auto* range = Array(*Described(m).mutable_input(0)).mutable_shape_range();
         for (int i = 0; i < 4; ++i) range->add_size_ranges()->set_upper_bound(i == 3 ? -1 : 64);
       },
       "axis 3 has no upper bound"},
      {"RangeExcludesDefault",
       [](auto& m) {
         auto* range = Array(*Described(m).mutable_input(0)).mutable_shape_range();
         for (int i = 0; i < 4; ++i) range->add_size_ranges()->set_upper_bound(16);
       },
       "axis 1 of the default shape"},
      {"RangeOfOtherRank",
       [](auto& m) { Array(*Described(m).mutable_input(0)).mutable_shape_range()->add_size_ranges(); },
       "1 ranges for rank 4"},
      {"OutputNotDescribed", [](auto& m) { Described(m).mutable_output()->RemoveLast(); },
       "1 outputs are described"},
      {"OutputTwice", [](auto& m) { *Described(m).add_output() = Described(m).output(0); },
       "twice as output"},
      {"OutputUnknown", [](auto& m) { Described(m).mutable_output(0)->set_name("q"); }, "does not return"},
      {"OutputShapeDiffers", [](auto& m) { Array(*Described(m).mutable_output(0)).set_shape(0, 2); },
       "another shape than"},
      {"OutputTypeDiffers", [](auto& m) { Array(*Described(m).mutable_output(0)).set_data_type(0x10020); },
       "data type 65568"},

      {"OpsetUnknown", [](auto& m) { Fn(m).set_opset("CoreML99"); }, "opset 'CoreML99'"},
      {"OpsetWithoutBlock", [](auto& m) { Fn(m).set_opset("CoreML7"); }, "no block for opset CoreML7"},
      {"FunctionInputRenamed", [](auto& m) { Fn(m).mutable_inputs(0)->set_name("u"); },
       "feature 'x': described as input, but no"},
      {"InputTypeMissing", [](auto& m) { Fn(m).mutable_inputs(0)->clear_type(); }, "without a type"},
      {"RankDiffers", [](auto& m) { Tensor(*Fn(m).mutable_inputs(0)).set_rank(3); },
       "rank 3 with 4 dimensions"},
      {"RankUnknown", [](auto& m) { Tensor(*Fn(m).mutable_inputs(0)).set_rank(-1); }, "unknown rank"},
      {"DimensionMissing",
       [](auto& m) { Tensor(*Fn(m).mutable_inputs(0)).mutable_dimensions(1)->clear_constant(); },
       "an axis without a size"},
      {"DimensionHuge",
       [](auto& m) {
         Tensor(*Fn(m).mutable_inputs(0))
             .mutable_dimensions(1)
             ->mutable_constant()
             ->set_size(uint64_t(1) << 63);
       },
       "an axis of 9223372036854775808"},
      {"DimensionVariadic",
       [](auto& m) {
         Tensor(*Fn(m).mutable_inputs(0)).mutable_dimensions(1)->mutable_unknown()->set_variadic(true);
       },
       "variadic"},
      {"DimensionOpen",
       [](auto& m) { Tensor(*Fn(m).mutable_inputs(0)).mutable_dimensions(1)->mutable_unknown(); },
       "an axis is flexible in the program"},
      {"DataTypeUnknown", [](auto& m) { Tensor(*Op(m, "mul").mutable_outputs(0)).set_data_type(9); },
       "data type 9"},
      {"ListType", [](auto& m) { Op(m, "mul").mutable_outputs(0)->mutable_type()->mutable_list_type(); },
       "a list"},
      {"OpTypeEmpty", [](auto& m) { Op(m, "mul").clear_type(); }, "no type"},
      {"ResultDimensionDiffers",
       [](auto& m) {
         Tensor(*Op(m, "concat").mutable_outputs(0)).mutable_dimensions(1)->mutable_constant()->set_size(95);
       },
       "declares tensor<fp16, [1, 95, 1, 32]>, but returns tensor<fp16, [1, 96, 1, 32]>"},
      {"ResultTypeDiffers", [](auto& m) { Tensor(*Op(m, "conv").mutable_outputs(0)).set_data_type(11); },
       "(conv 'conv_0')"},
      {"ResultTwice",
       [](auto& m) { Op(m, "mul").mutable_outputs(0)->set_name(Op(m, "conv").outputs(0).name()); },
       "'conv_0' is defined twice"},
      {"ResultMissing", [](auto& m) { Op(m, "mul").clear_outputs(); }, "declares 0 results, but has 1"},
      {"ResultReserved", [](auto& m) { Op(m, "mul").mutable_outputs(0)->set_name("tensor"); },
       "not an identifier"},
      {"ResultWithSpace", [](auto& m) { Op(m, "mul").mutable_outputs(0)->set_name("a b"); },
       "not an identifier"},
      {"InputUndefined", [](auto& m) { In(Op(m, "mul"), "x").mutable_arguments(0)->set_name("nothing"); },
       "'x' uses 'nothing', which is not defined earlier"},
      {"InputDefinedLater",
       [](auto& m) { In(Op(m, "conv"), "x").mutable_arguments(0)->set_name("concat_3"); },
       "not defined earlier"},
      {"InputUnbound", [](auto& m) { In(Op(m, "mul"), "x").mutable_arguments(0)->clear_binding(); },
       "bound to nothing"},
      {"InputEmpty", [](auto& m) { In(Op(m, "mul"), "x").clear_arguments(); }, "bound to nothing"},
      {"InputMissing", [](auto& m) { Op(m, "conv").clear_inputs(); }, "(conv 'conv_0'): 'x' is missing"},
      {"OpAttribute",
       [](auto& m) {
         auto* extra = Op(m, "mul").add_attributes();
         extra->set_key("val");
         *extra->mutable_value() = Attribute(WeightConst(m), "name");
       },
       "attribute 'val'"},
      {"NameNoString", [](auto& m) { Attribute(Op(m, "mul"), "name") = Attribute(ConstOf(m, 23), "val"); },
       "'name' is not a string"},
      {"OpWithBlocks", [](auto& m) { Op(m, "mul").add_blocks(); }, "only cond and while_loop"},
      {"BlockOutputUnknown", [](auto& m) { Body(m).set_outputs(0, "zz"); }, "'y'"},
      {"BlockOutputMissing", [](auto& m) { Body(m).mutable_outputs()->RemoveLast(); }, "does not return"},
      {"BlockInputs", [](auto& m) { *Body(m).add_inputs() = Fn(m).inputs(0); }, "inputs of its own"},
      {"BlockAttribute", [](auto& m) { Body(m).add_attributes()->set_key("a"); }, "attribute 'a'"},

      {"ConstWithoutValue", [](auto& m) { WeightConst(m).mutable_attributes()->RemoveLast(); },
       "needs 'val'"},
      {"ConstValueEmpty", [](auto& m) { Attribute(WeightConst(m), "val").clear_value(); }, "without a value"},
      {"ConstWithInputs", [](auto& m) { *WeightConst(m).mutable_inputs() = Op(m, "mul").inputs(); },
       "a constant has no inputs"},
      {"ConstTypeDiffers", [](auto& m) { Tensor(*WeightConst(m).mutable_outputs(0)).set_data_type(11); },
       "declared tensor<fp32"},
      {"ConstShapeDiffers",
       [](auto& m) {
         Tensor(*WeightConst(m).mutable_outputs(0)).mutable_dimensions(0)->mutable_constant()->set_size(31);
       },
       "declared tensor<fp16, [31, 64, 1, 1]>"},
      {"HalfInFloats", [](auto& m) { Immediate(ConstOf(m, 10)).mutable_floats()->add_values(0.5f); },
       "fp16 stored in kind 1, expected 7"},
      {"HalfTooLong", [](auto& m) { Immediate(ConstOf(m, 10)).mutable_bytes()->set_values("abc"); },
       "3 bytes for fp16"},
      {"IntsTooMany", [](auto& m) { Immediate(ConstOf(m, 23)).mutable_ints()->add_values(1); },
       "elements for"},
      {"ValueIsList",
       [](auto& m) { Attribute(ConstOf(m, 23), "val").mutable_immediate_value()->mutable_list(); },
       "a value that is not a tensor"},
      {"StringInWeightFile",
       [](auto& m) { Attribute(ConstOf(m, 2), "val").mutable_blob_file_value()->set_offset(64); },
       "strings and bools"},
      {"ConvWeightDoesNotFit",
       [](auto& m) { In(Op(m, "conv"), "weight").mutable_arguments(0)->set_name("literal_0"); }, "(conv"},
      {"ConcatAxis", [](auto& m) { In(Op(m, "concat"), "axis").mutable_arguments(0)->set_name("w_half"); },
       "'axis' must be integers"},
      {"LutTableDoesNotFit",
       [](auto& m) {
         auto& lut = *In(Op(m, "constexpr_lut_to_dense"), "lut").mutable_arguments(0)->mutable_value();
         lut.mutable_type()->mutable_tensor_type()->mutable_dimensions(0)->mutable_constant()->set_size(3);
       },
       "a table [3, 1, 1, 1, 16, 1] for indices"},
      {"ScaleDoesNotFit",
       [](auto& m) {
         auto& scale =
             *In(Op(m, "constexpr_blockwise_shift_scale"), "scale").mutable_arguments(0)->mutable_value();
         scale.mutable_type()->mutable_tensor_type()->mutable_dimensions(0)->mutable_constant()->set_size(3);
       },
       "scales [3, 1, 1, 1] for data"},
      {"NegativeInBuildInfo",
       [](auto& m) {
         m.mutable_ml_program()->mutable_attributes(0)->mutable_value()->clear_immediate_value();
       },
       "not a dictionary"},
      // References into the weight file.
      {"WeightOffsetBetweenRecords",
       [](auto& m) { Attribute(WeightConst(m), "val").mutable_blob_file_value()->set_offset(128); },
       "const 'w_half': val: there is no record at offset 128"},
      {"WeightOffsetPastTheEnd",
       [](auto& m) { Attribute(WeightConst(m), "val").mutable_blob_file_value()->set_offset(UINT64_MAX); },
       "is no record"},
      {"WeightOffsetOfOtherTensor",
       [](auto& m) {
         const auto& indices = In(Op(m, "constexpr_lut_to_dense"), "indices").arguments(0).value();
         Attribute(WeightConst(m), "val")
             .mutable_blob_file_value()
             ->set_offset(indices.blob_file_value().offset());
       },
       "a record of uint4"},
      {"WeightFileUnknown",
       [](auto& m) {
         Attribute(WeightConst(m), "val").mutable_blob_file_value()->set_file_name("@model_path/weights/w2");
       },
       "w2"},
      {"WeightFileEscapes",
       [](auto& m) { Attribute(WeightConst(m), "val").mutable_blob_file_value()->set_file_name("../.."); },
       "is not in the package"},
  };
  return cases;
}

class Corrupt : public testing::TestWithParam<Case> {};

TEST_P(Corrupt, IsRefusedAtItsPlace) {
  const test::TempFolder folder;
  const std::filesystem::path path = folder / "a.mlpackage";
  const Package package = test::MakeExample(path);
  WritePackage(path, package);
  proto::Model model = ToProto(package);
  GetParam().spoil(model);
  WriteFileAtomically(path / kModelPlace, model.SerializeAsString());
  try {
    ReadPackage(path);
    FAIL() << "read without complaint";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(GetParam().expected), std::string::npos) << what;
    EXPECT_NE(what.find("a.mlpackage"), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Model, Corrupt, testing::ValuesIn(Cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Cut anywhere, or with any byte changed: an error or a program, never a crash.
TEST(CorruptBytes, NeverCrash) {
  const test::TempFolder folder;
  const std::string good = SerialiseModel(test::MakeExample(folder / "a.mlpackage", {32}));
  size_t refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ (at % 3 == 0 ? 0x01 : at % 3 == 1 ? 0x80 : 0xff));
    try {
      ParseModel(bad, "model");
    } catch (const Error&) {
      ++refused;
    }
    EXPECT_THROW(ParseModel(good.substr(0, at), "model"), Error) << at;
  }
  EXPECT_GT(refused, good.size() / 2);  // the other changes give another name, text or number
}

}  // namespace
}  // namespace pd
