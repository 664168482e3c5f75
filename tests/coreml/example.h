// A small package in a folder of its own: two functions over one weight file, every kind of constant.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "coreml/mil/builder.h"
#include "coreml/package/blob.h"
#include "coreml/package/manifest.h"
#include "coreml/package/package.h"

namespace pd::test {

inline std::vector<std::byte> Pattern(const mil::TensorType& type) {
  std::vector<std::byte> bytes(mil::ByteSize(type));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 % 64);  // small positive halves
  if (const int bits = mil::Bits(type.dtype); bits < 8 && mil::Elements(type) * bits % 8 != 0)
    bytes.back() &= std::byte((1 << mil::Elements(type) * bits % 8) - 1);
  return bytes;
}

inline mil::Value AddBlob(BlobWriter& writer, const mil::TensorType& type) {
  return {type, mil::Blob{kWeightFile, writer.Add(type, Pattern(type)), {}, {}}};
}

struct ExampleWeights {
  mil::Value half, indices, table, data, scale, offset;
};

inline mil::Function ExampleFunction(const ExampleWeights& w, int64_t tokens) {
  using mil::DataType;
  mil::FunctionBuilder f("CoreML8");
  const std::string x = f.Input("x", {DataType::kF16, {1, 64, 1, tokens}});
  const auto conv = [&](const std::string& input, const std::string& weight) {
    return f.Op("conv", {{"x", input},
                         {"weight", weight},
                         {"strides", mil::Vector(std::vector<int32_t>{1, 1})},
                         {"pad_type", mil::Scalar("valid")},
                         {"pad", mil::Vector(std::vector<int32_t>{0, 0, 0, 0})},
                         {"dilations", mil::Vector(std::vector<int32_t>{1, 1})},
                         {"groups", mil::Scalar(1)}});
  };
  const std::string a = conv(x, f.Const("w_half", w.half));
  const std::string b =
      conv(x, f.Constexpr("constexpr_lut_to_dense", "w_lut", {{"indices", w.indices}, {"lut", w.table}}));
  const std::string c = conv(x, f.Constexpr("constexpr_blockwise_shift_scale", "w_int8",
                                            {{"data", w.data}, {"scale", w.scale}, {"offset", w.offset}}));
  const std::string all = f.Op("concat", {{"values", std::vector<std::string>{a, b, c}},
                                          {"axis", mil::Scalar(1)},
                                          {"interleave", mil::Scalar(false)}});
  f.Output(f.Op("mul", {{"x", all}, {"y", mil::ScalarF16(0.5f)}}), "y");
  f.Output(f.Op("gelu", {{"x", a}, {"mode", mil::Scalar("TANH_APPROXIMATION")}}), "z");
  return std::move(f).Finish();
}

// Writes weight.bin and returns the package that goes with it; WritePackage completes the folder.
inline Package MakeExample(const std::filesystem::path& directory,
                           const std::vector<int64_t>& lengths = {32, 64}) {
  using mil::DataType;
  std::filesystem::create_directories(directory / kWeightsPlace);
  BlobWriter writer(directory / kWeightsPlace / "weight.bin");
  ExampleWeights w;
  w.half = AddBlob(writer, {DataType::kF16, {32, 64, 1, 1}});
  w.indices = AddBlob(writer, {DataType::kU4, {32, 64, 1, 1}});
  w.table = AddBlob(writer, {DataType::kF16, {4, 1, 1, 1, 16, 1}});
  w.data = AddBlob(writer, {DataType::kI8, {32, 64, 1, 1}});
  w.scale = AddBlob(writer, {DataType::kF16, {32, 1, 1, 1}});
  w.offset = AddBlob(writer, {DataType::kI8, {32, 1, 1, 1}});
  writer.Finish();
  Package package;
  for (int64_t t : lengths) package.program.functions["t" + std::to_string(t)] = ExampleFunction(w, t);
  package.default_function = "t" + std::to_string(lengths.front());
  package.program.build_info["maker"] = "test";
  return package;
}

}  // namespace pd::test
