#include "coreml/mil/program.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace pd::mil {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int v : values) bytes.push_back(std::byte(v));
  return bytes;
}

TEST(Program, NamesEveryDataTypeBothWays) {
  int known = 0;
  for (int i = 0; i < 256; ++i) {
    const char* name = Name(DataType(i));
    if (!name) continue;
    ++known;
    EXPECT_EQ(DataTypeOf(name), DataType(i)) << name;
  }
  EXPECT_EQ(known, 22);
  EXPECT_EQ(DataTypeOf("int128"), std::nullopt);
}

TEST(Program, CountsBytesOfSubByteTypesOnce) {
  EXPECT_EQ(ByteSize({DataType::kU4, {3}}), 2u);
  EXPECT_EQ(ByteSize({DataType::kU3, {3, 3}}), 4u);
  EXPECT_EQ(ByteSize({DataType::kF16, {2, 3}}), 12u);
  EXPECT_EQ(ByteSize({DataType::kI32, {}}), 4u);
  EXPECT_EQ(ByteSize({DataType::kF16, {4, 0}}), 0u);
}

TEST(Program, ReadsIntegersOfEveryWidth) {
  EXPECT_EQ(ReadInts(Vector(std::vector<int32_t>{1, -2, INT32_MIN})),
            (std::vector<int64_t>{1, -2, INT32_MIN}));
  EXPECT_EQ(ReadInts(Vector(std::vector<bool>{true, false})), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(ReadInts(Packed({DataType::kI4, {3}}, Bytes({0xE1, 0x07}))), (std::vector<int64_t>{1, -2, 7}));
  EXPECT_EQ(ReadInts(Packed({DataType::kU4, {3}}, Bytes({0xE1, 0x07}))), (std::vector<int64_t>{1, 14, 7}));
  // Three-bit elements cross bytes: 0b001, 0b101, 0b111 from the lowest bit.
  EXPECT_EQ(ReadInts(Packed({DataType::kU3, {3}}, Bytes({0b11101001, 0b1}))),
            (std::vector<int64_t>{1, 5, 7}));
  EXPECT_EQ(ReadInts(Packed({DataType::kI8, {2}}, Bytes({0x80, 0x7f}))), (std::vector<int64_t>{-128, 127}));
  EXPECT_EQ(ReadInts(Packed({DataType::kU16, {1}}, Bytes({0xff, 0xff}))), (std::vector<int64_t>{65535}));
}

TEST(Program, ReadsFloats) {
  EXPECT_EQ(ReadFloats(ScalarF16(1.5f)), std::vector<float>{1.5f});
  EXPECT_EQ(ReadFloats(Packed({DataType::kBF16, {1}}, Bytes({0x80, 0x3f}))), std::vector<float>{1.f});
  EXPECT_EQ(ReadFloats(Packed({DataType::kF32, {1}}, Bytes({0, 0, 0x80, 0xbf}))), std::vector<float>{-1.f});
}

TEST(Program, ReadsThroughTheWeightFile) {
  const auto data = Bytes({0x00, 0x3c, 0x00, 0xc0});
  const Value value{{DataType::kF16, {2}}, Blob{"@model_path/weights/weight.bin", 64, data, nullptr}};
  EXPECT_EQ(ReadFloats(value), (std::vector<float>{1, -2}));
}

Program Example() {
  Operation weight{"const", {}, {{"w", {DataType::kF16, {8, 4, 1, 1}}}}, {}, {}};
  weight.attributes["name"] = Scalar("w");
  weight.attributes["val"] = {{DataType::kF16, {8, 4, 1, 1}},
                              Blob{"@model_path/weights/weight.bin", 64, {}, {}}};
  Operation conv{"conv", {}, {{"y", {DataType::kF16, {1, 8, 1, 2}}}}, {}, {}};
  conv.inputs["x"] = {"x"};
  conv.inputs["weight"] = {"w"};
  conv.inputs["strides"] = {Vector(std::vector<int32_t>{1, 1})};
  conv.attributes["name"] = Scalar("y");
  Operation concat{"concat", {}, {{"z", {DataType::kF16, {1, 16, 1, 2}}}}, {}, {}};
  concat.inputs["values"] = {"y", "y"};
  concat.inputs["axis"] = {Scalar(int32_t(1))};
  concat.attributes["name"] = Scalar("z \"quoted\"");
  Function main{
      {{"x", {DataType::kF16, {1, 4, 1, 2}}}, {"cache", {DataType::kF16, {1, 2}}, true}}, "CoreML8", {}};
  main.body = {{}, {weight, conv, concat}, {"z"}};
  return {{{"main", main}}, {{"maker", "test"}}};
}

TEST(Program, PrintsAsMilText) {
  EXPECT_EQ(ToText(Example()), R"(program(1.0)
["maker" = "test"]

func main<ios18>(tensor<fp16, [1, 4, 1, 2]> x, state<tensor<fp16, [1, 2]>> cache) {
    tensor<fp16, [8, 4, 1, 1]> w = const()[name = string("w"), val = tensor<fp16, [8, 4, 1, 1]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))];
    tensor<fp16, [1, 8, 1, 2]> y = conv(strides = tensor<int32, [2]>([1, 1]), weight = w, x = x)[name = string("y")];
    tensor<fp16, [1, 16, 1, 2]> z = concat(axis = int32(1), values = (y, y))[name = string("z \"quoted\"")];
} -> (z);
)");
}

TEST(Program, ShortensLongValues) {
  Operation op{"const", {}, {{"c", {DataType::kI32, {20}}}}, {}, {}};
  op.attributes["val"] = Vector(std::vector<int32_t>(20, 7));
  const std::string text = ToText("f", Function{{}, "CoreML5", {{}, {op}, {"c"}}});
  EXPECT_NE(text.find("7, ... 4 more])"), std::string::npos) << text;
}

TEST(Program, ComparesByContent) {
  Program a = Example(), b = Example();
  EXPECT_EQ(a, b);
  std::get<Value>(b.functions["main"].body.operations[1].inputs["strides"][0]) =
      Vector(std::vector<int32_t>{1, 2});
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace pd::mil
