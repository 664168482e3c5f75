// The interpreter itself: memory, errors, and programs that our own writer and lowering make.
#include "coreml/interpreter/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "coreml/device/interpreted.h"
#include "coreml/export/encode.h"
#include "coreml/export/range.h"
#include "coreml/mil/check.h"
#include "coreml/mil/mil_ops.h"
#include "tests/coreml/double_predictor.h"
#include "tests/coreml/example.h"
#include "tests/error_table.h"
#include "tests/expect_error.h"
#include "tests/temp_folder.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

using mil::DataType;
using mil::FunctionBuilder;
using test::ExpectError;

std::shared_ptr<ThreadPool> Pool(int threads = 2) { return std::make_shared<ThreadPool>(threads); }

Package PackageOf(FunctionBuilder&& builder) {
  Package package;
  package.program.functions["main"] = std::move(builder).Finish();
  return package;
}

std::vector<F16> RandomHalves(const mil::TensorType& type, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<F16> halves(size_t(mil::Elements(type)));
  for (F16& h : halves) h = ToF16(normal(generator));
  return halves;
}

// Owns what InputTensor points to.
struct Inputs {
  std::map<std::string, std::vector<F16>> memory;
  InputTensors tensors;
};
Inputs RandomInputs(const std::vector<mil::NamedType>& wanted) {
  Inputs inputs;
  unsigned seed = 0;
  for (const mil::NamedType& input : wanted) {
    const auto& halves = inputs.memory[input.name] = RandomHalves(input.type, ++seed);
    inputs.tensors[input.name] = {input.type, {}, reinterpret_cast<const std::byte*>(halves.data())};
  }
  return inputs;
}

std::vector<float> Floats(const OutputTensor& tensor) {
  return mil::ReadFloats({tensor.type, *tensor.bytes});
}

// ---- programs of ours ----

// What the package of example.h computes, from the meaning of its constants.
TEST(Interpreter, RunsTheExamplePackage) {
  const test::TempFolder folder;
  const auto path = folder / "example.mlpackage";
  WritePackage(path, test::MakeExample(path));
  const Package package = ReadPackage(path);
  std::map<std::string, std::vector<double>> operands;
  for (const mil::Operation& op : package.program.functions.at("t32").body.operations) {
    const auto read = [&](const std::string& name, const mil::Value& value) {
      auto& all = operands[name];
      if (mil::IsFloat(value.type.dtype))
        for (float v : mil::ReadFloats(value)) all.push_back(double(v));
      else if (value.type.dtype != DataType::kString)
        for (int64_t v : mil::ReadInts(value)) all.push_back(double(v));
    };
    if (op.type == "const") read(op.outputs[0].name, op.attributes.at("val"));
    if (op.type.starts_with("constexpr_"))
      for (const auto& [key, bindings] : op.inputs) read(key, std::get<mil::Value>(bindings[0]));
  }
  std::vector<double> weights = operands.at("w_half");  // [96, 64]: the three matrices
  for (size_t i = 0; i < 32 * 64; ++i)
    weights.push_back(operands.at("lut")[i / 64 / 8 * 16 + size_t(operands.at("indices")[i])]);
  for (size_t i = 0; i < 32 * 64; ++i)
    weights.push_back(double(ToFloat(ToF16(
        float(operands.at("scale")[i / 64] * (operands.at("data")[i] - operands.at("offset")[i / 64]))))));

  Interpreter interpreter(package, Pool());
  for (const int64_t tokens : {32, 64}) {
    const std::string function = "t" + std::to_string(tokens);
    const Inputs inputs = RandomInputs(interpreter.Inputs(function));
    const OutputTensors outputs = interpreter.Run(function, inputs.tensors);
    const std::vector<float> y = Floats(outputs.at("y"));
    std::vector<double> want(y.size());
    for (size_t o = 0; o < 96; ++o)
      for (size_t i = 0; i < 64; ++i)
        for (size_t t = 0; t < size_t(tokens); ++t)
          want[o * size_t(tokens) + t] +=
              0.5 * weights[o * 64 + i] * double(ToFloat(inputs.memory.at("x")[i * size_t(tokens) + t]));
    EXPECT_LT(test::RelativeError(y, want), test::OpError("ane_reference"));
  }
}

struct Form {
  const char* name;
  mil::AttentionForm attention;
  KeyForm keys;
  ModelSpec (*spec)() = [] { return test::MixedSpec(); };
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class Lowered : public testing::TestWithParam<Form> {
 protected:
  // Two functions of a model with layers of every kind; random weights.
  Lowered() {
    const ModelSpec spec = GetParam().spec();
    Weights<mil::EncodedWeight> encoded;
    BlobLayout layout;
    MakeRoom(spec, encoded);
    ForEachWeight(spec, encoded, [&](mil::EncodedWeight& w, const WeightInfo& info) {
      w = IsNeeded(spec, info) ? PlanWeight(spec, info, WeightFormat::kFp16, layout)
                               : mil::EncodedWeight{info, {}};
    });
    memory_ = RandomHalves({DataType::kF16, {int64_t(layout.size() / 2)}});
    for (F16& h : memory_) h = ToF16(ToFloat(h) * 0.2f);
    const auto pointers = MapWeights<const mil::EncodedWeight*>(
        spec, encoded, [](const mil::EncodedWeight& w, const WeightInfo&) { return &w; });
    for (int history : {0, 64})
      package_.program.functions["s" + std::to_string(history)] =
          LowerPrefill(spec, pointers, UnitScales(spec), {GetParam().attention, GetParam().keys},
                       {32, history}, {0})
              .at(0);
    const auto bytes = std::as_bytes(std::span(memory_));
    for (auto& [name, function] : package_.program.functions)
      for (mil::Operation& op : function.body.operations)
        for (auto& [key, value] : op.attributes)
          if (auto* blob = std::get_if<mil::Blob>(&value.data))
            blob->bytes = bytes.subspan(blob->offset + 64, mil::ByteSize(value.type));
  }

  std::vector<F16> memory_;
  Package package_;
};

TEST_P(Lowered, AgreesWithDouble) {
  Interpreter fast(package_, Pool(1)), threads(package_, Pool(3)), plain(package_, Pool(1), {true, 0});
  test::DoublePredictor exact(package_);
  for (const auto& [function, definition] : package_.program.functions) {
    const Inputs inputs = RandomInputs(fast.Inputs(function));
    HalfTensors halves;
    for (const auto& [name, t] : inputs.tensors)
      halves[name] = {t.type.shape, mil::DenseStrides(t.type.shape), inputs.memory.at(name).data(), {}};
    const OutputTensors got = fast.Run(function, inputs.tensors),
                        shared = threads.Run(function, inputs.tensors),
                        readable = plain.Run(function, inputs.tensors);
    const HalfTensors want = exact.Predict(function, halves, nullptr);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, tensor] : want) {
      std::vector<double> numbers;
      for (int64_t i = 0; i < tensor.shape[1]; ++i)
        for (int64_t j = 0; j < tensor.shape[3]; ++j)
          numbers.push_back(double(ToFloat(tensor.data[i * tensor.strides[1] + j])));
      EXPECT_LT(test::RelativeError(Floats(got.at(name)), numbers), test::LogitError("ane_reference"))
          << name;
      EXPECT_LT(test::RelativeError(Floats(readable.at(name)), numbers), test::LogitError("ane_reference"))
          << name;
      EXPECT_EQ(*got.at(name).bytes, *shared.at(name).bytes) << name;  // threads change no bit
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Lowered,
                         testing::Values(Form{"heads", mil::AttentionForm::kHeads, KeyForm::kRotated},
                                         Form{"heads_raw", mil::AttentionForm::kHeads, KeyForm::kRaw},
                                         Form{"channels", mil::AttentionForm::kChannels, KeyForm::kRotated},
                                         Form{"grouped", mil::AttentionForm::kGrouped, KeyForm::kRotated},
                                         Form{"other_kinds_heads", mil::AttentionForm::kHeads,
                                              KeyForm::kRotated, test::OtherKindsSpec},
                                         Form{"other_kinds_channels", mil::AttentionForm::kChannels,
                                              KeyForm::kRotated, test::OtherKindsSpec},
                                         Form{"other_kinds_grouped", mil::AttentionForm::kGrouped,
                                              KeyForm::kRotated, test::OtherKindsSpec}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// ---- memory ----

TEST(Interpreter, TensorsShareMemoryOnceTheyAreNotNeeded) {
  FunctionBuilder f("CoreML8");
  const mil::TensorType type{DataType::kF16, {1, 512, 1, 1024}};  // 1 MB
  std::string x = f.Input("x", type);
  for (int i = 0; i < 40; ++i) x = f.Op("relu", {{"x", x}});
  f.Output(x, "y");
  EXPECT_LE(Interpreter(PackageOf(std::move(f)), Pool()).working_bytes(), 2 * mil::ByteSize(type));
}

// Views and concat move nothing: the operands are computed where the result wants them.
TEST(Interpreter, ConcatOfComputedPartsNeedsNoMoreThanItsResult) {
  FunctionBuilder f("CoreML8");
  const std::string x = f.Input("x", {DataType::kF16, {1, 64, 1, 1024}});
  const std::string a = f.Op("relu", {{"x", x}}), b = f.Op("exp", {{"x", x}});
  const std::string heads =
      f.Op("reshape", {{"x", b}, {"shape", mil::Vector(std::vector<int32_t>{1, 4, 16, 1024})}});
  const std::string back =
      f.Op("reshape", {{"x", heads}, {"shape", mil::Vector(std::vector<int32_t>{1, 64, 1, 1024})}});
  const std::string all = f.Op("concat", {{"values", std::vector<std::string>{a, back}},
                                          {"axis", mil::Scalar(3)},
                                          {"interleave", mil::Scalar(false)}});
  f.Output(all, "y");
  Interpreter interpreter(PackageOf(std::move(f)), Pool());
  EXPECT_LE(interpreter.working_bytes(), size_t(2 * 64 * 1024 * 2));
  const Inputs inputs = RandomInputs(interpreter.Inputs("main"));
  const std::vector<float> y = Floats(interpreter.Run("main", inputs.tensors).at("y"));
  for (size_t c = 0; c < 64; ++c)
    for (size_t t = 0; t < 1024; ++t) {
      const float v = ToFloat(inputs.memory.at("x")[c * 1024 + t]);
      ASSERT_EQ(y[c * 2048 + t], std::max(v, 0.f));
      ASSERT_NEAR(y[c * 2048 + 1024 + t], std::exp(v), 1e-3f * std::exp(v));
    }
}

TEST(Interpreter, ResultsStayWhileSomebodyHoldsThem) {
  FunctionBuilder f("CoreML8");
  f.Output(f.Op("abs", {{"x", f.Input("x", {DataType::kF16, {4}})}}), "y");
  Interpreter interpreter(PackageOf(std::move(f)), Pool());
  const auto run = [&](float value) {
    const std::vector<F16> x(4, ToF16(value));
    return interpreter.Run(
        "main", {{"x", {{DataType::kF16, {4}}, {}, reinterpret_cast<const std::byte*>(x.data())}}});
  };
  const OutputTensors held = run(-3);
  EXPECT_EQ(Floats(run(-5).at("y"))[0], 5);
  EXPECT_EQ(Floats(held.at("y"))[0], 3);
  const void* freed = run(7).at("y").bytes.get();
  EXPECT_EQ(run(8).at("y").bytes.get(), freed);  // and is used again afterwards
}

TEST(Interpreter, ReadsInputsThroughStrides) {
  FunctionBuilder f("CoreML8");
  f.Output(f.Op("relu", {{"x", f.Input("x", {DataType::kF16, {2, 3}})}}), "y");
  Interpreter interpreter(PackageOf(std::move(f)), Pool());
  std::vector<F16> memory;
  for (int i = 0; i < 30; ++i) memory.push_back(ToF16(float(i)));
  const OutputTensors outputs = interpreter.Run(
      "main",
      {{"x", {{DataType::kF16, {2, 3}}, {10, 2}, reinterpret_cast<const std::byte*>(memory.data())}}});
  EXPECT_EQ(Floats(outputs.at("y")), (std::vector<float>{0, 2, 4, 10, 12, 14}));
}

TEST(Interpreter, RefusesMoreMemoryThanAllowed) {
  const auto make = [] {
    FunctionBuilder f("CoreML8");
    const std::string x = f.Input("x", {DataType::kF16, {1, 512, 1, 1024}});
    f.Output(f.Op("add", {{"x", f.Op("relu", {{"x", x}})}, {"y", f.Op("exp", {{"x", x}})}}), "y");
    return PackageOf(std::move(f));
  };
  const Interpreter fits(make(), Pool(), {false, 4 << 20});
  ExpectError(ErrorKind::kOutOfMemory, {"function main", "memory"},
              [&] { Interpreter(make(), Pool(), {false, 2 << 20}); });
  ExpectError(ErrorKind::kOutOfMemory, {"function main", "inputs"},
              [&] { Interpreter(make(), Pool(), {false, 1000}); });
}

// ---- ops that coremltools cannot write ----

TEST(Interpreter, MultipliesVectors) {
  const auto halves = [](const mil::Dims& shape, unsigned seed) {
    return RandomHalves({DataType::kF16, shape}, seed);
  };
  const auto x = halves({9}, 1), m = halves({9, 4}, 2);
  FunctionBuilder f("CoreML8");
  const std::string a = f.Input("a", {DataType::kF16, {9}}), b = f.Input("b", {DataType::kF16, {9, 4}});
  f.Output(f.Op("matmul", {{"x", a}, {"y", b}}), "row");
  f.Output(f.Op("matmul", {{"x", b}, {"y", a}, {"transpose_x", mil::Scalar(true)}}), "column");
  f.Output(f.Op("expand_dims", {{"x", f.Op("matmul", {{"x", a}, {"y", a}})},
                                {"axes", mil::Vector(std::vector<int32_t>{0})}}),
           "square");
  for (const bool plain : {false, true}) {
    FunctionBuilder copy = f;
    Interpreter interpreter(PackageOf(std::move(copy)), Pool(), {plain, 0});
    const OutputTensors outputs = interpreter.Run(
        "main", {{"a", {{DataType::kF16, {9}}, {}, reinterpret_cast<const std::byte*>(x.data())}},
                 {"b", {{DataType::kF16, {9, 4}}, {}, reinterpret_cast<const std::byte*>(m.data())}}});
    for (size_t j = 0; j < 4; ++j) {
      float sum = 0;
      for (size_t k = 0; k < 9; ++k) sum = std::fma(ToFloat(x[k]), ToFloat(m[k * 4 + j]), sum);
      EXPECT_EQ(Floats(outputs.at("row"))[j], ToFloat(ToF16(sum)));
      EXPECT_EQ(Floats(outputs.at("column"))[j], ToFloat(ToF16(sum)));
    }
    float square = 0;
    for (F16 h : x) square = std::fma(ToFloat(h), ToFloat(h), square);
    EXPECT_EQ(Floats(outputs.at("square")).at(0), ToFloat(ToF16(square)));
  }
}

// ---- errors ----

TEST(Interpreter, NamesWhatItCannotExecute) {
  const auto refuse = [](std::initializer_list<std::string_view> named, auto make,
                         const mil::TensorType& type = {DataType::kF16, {2, 3}}) {
    FunctionBuilder f("CoreML8");
    f.Output(make(f, f.Input("x", type)), "y");
    ExpectError(ErrorKind::kUnsupported, named, [&] { Interpreter(PackageOf(std::move(f)), Pool()); });
  };
  refuse({"function main", "real_div 'quotient'", "integers"},
         [](FunctionBuilder& f, const std::string& x) {
           return f.Op("real_div", {{"x", x}, {"y", x}}, "quotient");
         },
         {DataType::kI32, {2, 3}});
  refuse({"function main", "exp 'e'", "'x' of type int32"},
         [](FunctionBuilder& f, const std::string& x) { return f.Op("exp", {{"x", x}}, "e"); },
         {DataType::kI32, {2, 3}});
  refuse({"function main", "non_zero 'places'", "known only at run time"},
         [](FunctionBuilder& f, const std::string& x) { return f.Op("non_zero", {{"x", x}}, "places"); });

  FunctionBuilder f("CoreML8");
  f.Output(f.Op("relu", {{"x", f.Input("x", {DataType::kF16, {2}})}}, "r"), "y");
  Package package = PackageOf(std::move(f));
  package.program.functions["main"].body.operations[0].type = "lstm";
  ExpectError(ErrorKind::kUnsupported, {"function main", "lstm 'r'", "does not know"},
              [&] { Interpreter(package, Pool()); });
}

// A result's declared shape is not believed when run-time numbers decide it.
TEST(Interpreter, RefusesShapesFromRunTimeNumbers) {
  const auto one = [](int32_t a) { return mil::Vector(std::vector<int32_t>{a}); };
  const std::vector<std::tuple<const char*, const char*, mil::Parameters>> cases = {
      {"reshape", "shape", {{"shape", one(6)}}},
      {"slice_by_size", "size", {{"begin", one(0)}, {"size", one(3)}}},
      {"tile", "reps", {{"reps", one(2)}}}};
  for (const auto& [op, parameter, parameters] : cases) {
    FunctionBuilder f("CoreML8");
    mil::Parameters all = parameters;
    all.emplace_back("x", f.Input("x", {DataType::kF16, {6}}));
    f.Output(f.Op("relu", {{"x", f.Op(op, all, "moved")}}), "y");
    Package package = PackageOf(std::move(f));
    mil::Function& main = package.program.functions.at("main");
    main.inputs.push_back({"numbers", {DataType::kI32, {1}}, false});
    for (mil::Operation& o : main.body.operations)
      if (o.type == op) o.inputs.at(parameter) = {std::string("numbers")};
    mil::CheckProgram(package.program);
    ExpectError(ErrorKind::kUnsupported, {op, "'moved'", parameter, "only at run time"},
                [&] { Interpreter(package, Pool()); });
  }
}

TEST(Interpreter, SumsOfNoTermsAreZero) {
  for (const bool plain : {false, true}) {
    FunctionBuilder f("CoreML8");
    const std::string x = f.Input("x", {DataType::kF16, {1, 4, 1, 9}});
    const std::string none = f.Op("slice_by_size", {{"x", x},
                                                    {"begin", mil::Vector(std::vector<int32_t>{0, 4, 0, 0})},
                                                    {"size", mil::Vector(std::vector<int32_t>{1, 0, 1, 9})}});
    const mil::Value weight = mil::Packed({DataType::kF16, {5, 0, 1, 3}}, {});
    f.Output(f.Op("conv", {{"x", none}, {"weight", weight}}), "conv");
    const std::string turned =
        f.Op("transpose", {{"x", none}, {"perm", mil::Vector(std::vector<int32_t>{0, 2, 3, 1})}});
    f.Output(f.Op("matmul", {{"x", turned}, {"y", turned}, {"transpose_y", mil::Scalar(true)}}), "matmul");
    Interpreter interpreter(PackageOf(std::move(f)), Pool(), {plain, 0});
    const Inputs inputs = RandomInputs(interpreter.Inputs("main"));
    const OutputTensors outputs = interpreter.Run("main", inputs.tensors);
    EXPECT_EQ(Floats(outputs.at("conv")), std::vector<float>(5 * 7));
    EXPECT_EQ(Floats(outputs.at("matmul")), std::vector<float>(9 * 9));
  }
}

TEST(Interpreter, WantsExactlyTheInputsOfTheFunction) {
  FunctionBuilder f("CoreML8");
  f.Output(f.Op("relu", {{"x", f.Input("x", {DataType::kF16, {2}})}}), "y");
  Interpreter interpreter(PackageOf(std::move(f)), Pool());
  const F16 data[4] = {};
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const InputTensor good{{DataType::kF16, {2}}, {}, bytes};
  ExpectError(ErrorKind::kBadRequest, {"main", "'x' is missing"}, [&] { interpreter.Run("main", {}); });
  ExpectError(ErrorKind::kBadRequest, {"'x' is tensor<fp16, [2]>, given tensor<fp16, [3]>"},
              [&] { interpreter.Run("main", {{"x", {{DataType::kF16, {3}}, {}, bytes}}}); });
  ExpectError(ErrorKind::kBadRequest, {"no input 'z'"},
              [&] { interpreter.Run("main", {{"x", good}, {"z", good}}); });
  ExpectError(ErrorKind::kUnsupported, {"no function 'other'"}, [&] { interpreter.Run("other", {}); });
}

TEST(Interpreter, NamesTheOpThatFoundABadIndex) {
  FunctionBuilder f("CoreML8");
  const std::string x = f.Input("x", {DataType::kF16, {5, 2}}), i = f.Input("i", {DataType::kI32, {3}});
  f.Output(f.Op("gather", {{"x", x}, {"indices", i}, {"axis", mil::Scalar(0)}}, "rows"), "y");
  Interpreter interpreter(PackageOf(std::move(f)), Pool());
  const std::vector<F16> table(10, ToF16(1));
  const auto run = [&](std::vector<int32_t> indices) {
    return interpreter.Run(
        "main", {{"x", {{DataType::kF16, {5, 2}}, {}, reinterpret_cast<const std::byte*>(table.data())}},
                 {"i", {{DataType::kI32, {3}}, {}, reinterpret_cast<const std::byte*>(indices.data())}}});
  };
  EXPECT_EQ(Floats(run({0, -1, 4}).at("y")).size(), 6u);
  for (const int bad : {5, -6, INT32_MAX, INT32_MIN})
    ExpectError(ErrorKind::kDevice, {"function main", "gather 'rows'", "on an axis of 5"},
                [&] { run({0, bad, 1}); });
}

TEST(InterpretedPredictor, TakesProgramsOfHalvesOnly) {
  const test::TempFolder folder;
  FunctionBuilder f("CoreML8");
  f.Output(f.Op("cast", {{"x", f.Input("x", {DataType::kI32, {2}})}, {"dtype", mil::Scalar("fp16")}}), "y");
  WritePackage(folder / "ints.mlpackage", PackageOf(std::move(f)));
  const PredictorFactory open = InterpretedPredictors(Pool());
  ExpectError(ErrorKind::kUnsupported, {"ints.mlpackage", "'x' is tensor<int32, [2]>"},
              [&] { open(folder / "ints.mlpackage"); });

  const auto path = folder / "example.mlpackage";
  WritePackage(path, test::MakeExample(path));
  const auto predictor = open(path);
  EXPECT_EQ(predictor->Inputs("t32"), std::vector<std::string>{"x"});
  const auto x = RandomHalves({DataType::kF16, {1, 64, 1, 32}});
  const HalfTensors results =
      predictor->Predict("t32", {{"x", {{1, 64, 1, 32}, {64 * 32, 32, 32, 1}, x.data(), {}}}}, nullptr);
  EXPECT_EQ(results.at("y").shape, (mil::Dims{1, 96, 1, 32}));
  EXPECT_THROW(predictor->Inputs("t5"), Error);
}

}  // namespace
}  // namespace pd
