#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pd {
namespace {

// Every binary16 pattern survives the trip through float; NaNs stay NaNs.
TEST(F16, RoundTripsEveryPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float f = ToFloat(F16{uint16_t(bits)});
    if (std::isnan(f)) {
      EXPECT_EQ(bits & 0x7c00, 0x7c00u);
      EXPECT_TRUE(std::isnan(ToFloat(ToF16(f))));
    } else {
      EXPECT_EQ(ToF16(f).bits, bits);
    }
  }
}

// Between two neighbours the nearer wins, and half-way goes to the even one.
TEST(F16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = ToFloat(F16{uint16_t(bits)}), high = ToFloat(F16{uint16_t(bits + 1)}),
                middle = (low + high) / 2;
    EXPECT_EQ(ToF16(middle).bits, bits % 2 ? bits + 1 : bits) << bits;
    EXPECT_EQ(ToF16(std::nextafterf(middle, 0)).bits, bits);
    EXPECT_EQ(ToF16(std::nextafterf(middle, 1e9f)).bits, bits + 1);
    EXPECT_EQ(ToF16(-middle).bits, 0x8000u | (bits % 2 ? bits + 1 : bits));
  }
}

TEST(F16, OverflowsToInfinity) {
  EXPECT_EQ(ToF16(65504.f).bits, 0x7bff);
  EXPECT_EQ(ToF16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(ToF16(65520.f).bits, 0x7c00);
  EXPECT_EQ(ToF16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(ToF16(1e-30f).bits, 0);
}

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(ToBF16(1.f).bits, 0x3f80);
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(ToBF16(INFINITY).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBF16(NAN))));
}

TEST(DType, StoresWhatItReads) {
  const std::vector<float> row = {0, 1, -2.5f, 0.333251953125f, 65504, -0.f};
  for (DType type : {DType::kF32, DType::kF16}) {
    std::vector<std::byte> bytes(RowBytes(type, int64_t(row.size())) + 1);
    StoreRow(type, row, bytes.data() + 1);  // misaligned on purpose
    std::vector<float> back(row.size());
    DequantizeRow(type, bytes.data() + 1, back);
    EXPECT_EQ(back, row) << Name(type);
  }
}

// A block written by hand from the format's description: value = d * (q - 8), low nibbles first.
TEST(DType, Q4_0ByHand) {
  std::vector<std::byte> block(18, std::byte(0x80));
  block[0] = std::byte(0x00), block[1] = std::byte(0x38);  // d = 0.5
  block[2] = std::byte(0x1f);
  std::vector<float> out(32);
  DequantizeRow(DType::kQ4_0, block.data(), out);
  EXPECT_EQ(out[0], 3.5f);
  EXPECT_EQ(out[16], -3.5f);
  EXPECT_EQ(out[1], -4.f);
  EXPECT_EQ(out[17], 0.f);
}

}  // namespace
}  // namespace pd
