// Views of tensors as files hold them: fused, stacked, transposed.
#include "model/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pd {
namespace {

// Values 0, 1, 2, ... of that shape.
TensorView Counting(const Shape& shape, DType type = DType::kF32) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.f);
  auto bytes = std::make_shared<std::vector<std::byte>>(RowBytes(type, count));
  StoreRow(type, values, bytes->data());
  return {.name = "t", .type = type, .shape = shape, .bytes = *bytes, .owner = bytes};
}

using Floats = std::vector<float>;

// ReadAll, held against rows and copies of rows.
Floats Read(const TensorView& view) {
  const Floats all = view.ReadAll();
  const auto columns = size_t(view.columns());
  for (int64_t r = 0; r < view.rows(); ++r) {
    const Floats want(all.begin() + r * int64_t(columns), all.begin() + (r + 1) * int64_t(columns));
    Floats row(columns);
    view.ReadRow(r, row);
    EXPECT_EQ(row, want);
    std::vector<std::byte> copy(view.row_bytes());
    view.CopyRow(r, copy.data());
    DequantizeRow(view.type, copy.data(), row);
    EXPECT_EQ(row, want);
  }
  return all;
}

TEST(TensorView, RowsOfAFusedMatrix) {
  const TensorView fused = Counting({5, 3});
  EXPECT_EQ(Read(fused.RowRange(1, 2)), (Floats{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(fused.RowRange(1, 2).shape, (Shape{2, 3}));
  EXPECT_TRUE(fused.RowRange(0, 0).bytes.empty());
  EXPECT_EQ(Read(fused.EveryRow(0, 2)), (Floats{0, 1, 2, 6, 7, 8, 12, 13, 14}));
  EXPECT_EQ(Read(fused.EveryRow(1, 2)), (Floats{3, 4, 5, 9, 10, 11}));
  EXPECT_EQ(Read(fused.EveryRow(1, 2).RowRange(1, 1)), (Floats{9, 10, 11}));
}

TEST(TensorView, StacksOfMatrices) {
  const TensorView stack = Counting({2, 4, 2});
  EXPECT_EQ(stack.rows(), 8);
  EXPECT_EQ(stack.columns(), 2);
  EXPECT_EQ(Read(stack).size(), 16u);
  // The halves of fused gate and up projections, for each expert.
  EXPECT_EQ(Read(stack.RowRange(0, 2)), (Floats{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(Read(stack.RowRange(2, 2)), (Floats{4, 5, 6, 7, 12, 13, 14, 15}));
  // Alternating rows, as gpt-oss has them.
  EXPECT_EQ(Read(stack.EveryRow(1, 2)), (Floats{2, 3, 6, 7, 10, 11, 14, 15}));
}

TEST(TensorView, TransposedMatrices) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const TensorView turned = Counting({3, 2}, type).Transposed();
    EXPECT_EQ(turned.shape, (Shape{2, 3}));
    EXPECT_FALSE(turned.has_whole_rows());
    EXPECT_EQ(Read(turned), (Floats{0, 2, 4, 1, 3, 5}));
  }
  const TensorView stack = Counting({2, 2, 4}).Transposed();  // [experts, in, 2 * hidden] in the file
  EXPECT_EQ(stack.shape, (Shape{2, 4, 2}));
  EXPECT_EQ(Read(stack), (Floats{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}));
  EXPECT_EQ(Read(stack.EveryRow(1, 2)), (Floats{1, 5, 3, 7, 9, 13, 11, 15}));
  EXPECT_EQ(Read(stack.RowRange(0, 1)), (Floats{0, 4, 8, 12}));
}

TEST(TensorView, RowsOfBlocks) {
  std::vector<std::byte> bytes;
  for (int r = 0; r < 4; ++r) {  // a scale of r + 1 and codes 0 to 31
    const F16 scale = ToF16(float(r + 1));
    const auto* halves = reinterpret_cast<const std::byte*>(&scale);
    bytes.insert(bytes.end(), halves, halves + sizeof scale);
    for (int i = 0; i < 32; ++i) bytes.push_back(std::byte(i));
  }
  const TensorView blocks{
      .name = "blocks", .type = DType::kQ8_0, .shape = {4, 32}, .bytes = bytes, .owner = nullptr};
  const Floats all = blocks.ReadAll();
  EXPECT_EQ(Read(blocks.RowRange(2, 1)), Floats(all.begin() + 64, all.begin() + 96));
  EXPECT_EQ(Read(blocks.EveryRow(3, 4)), Floats(all.begin() + 96, all.end()));
}

TEST(TensorView, RowsOfAffineCodes) {
  const std::vector<uint32_t> codes = {0x76543210, 0, 0, 0, 0x11111111, 0, 0, 0, 0x22222222, 0, 0, 0};
  const Floats scales = {1, 2, 3}, biases = {10, 20, 30};
  const TensorView view{.name = "codes",
                        .type = AffineType(4),
                        .shape = {3, 32},
                        .bytes = std::as_bytes(std::span(codes)),
                        .owner = nullptr,
                        .affine = AffineScales{32, DType::kF32, std::as_bytes(std::span(scales)),
                                               std::as_bytes(std::span(biases))}};
  const Floats all = view.ReadAll();
  const TensorView part = view.RowRange(1, 2);
  EXPECT_EQ(part.ReadAll(), Floats(all.begin() + 32, all.end()));
  EXPECT_EQ(part.ReadScales(1), (Floats{3}));
  EXPECT_EQ(part.ReadAll()[0], 2 * 1 + 20);
}

TEST(TensorView, GainsWithOneAdded) {
  const TensorView gain = Counting({4}, DType::kBF16), added = WithOneAdded(gain);
  EXPECT_EQ(added.ReadAll(), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(added.type, DType::kF32);
  EXPECT_EQ(added.name, gain.name);
  EXPECT_FALSE(added.mapped);
}

}  // namespace
}  // namespace pd
