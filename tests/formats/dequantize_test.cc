// Every weight format decoded as PyPI gguf decodes it, bit for bit (tests/data/README.md).
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <map>

#include "formats/safetensors.h"
#include "model/tensor.h"

namespace pd::test {
namespace {

struct Format {
  const char* name;
  DType type;
};
void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

class Dequantize : public ::testing::TestWithParam<Format> {};

TEST_P(Dequantize, IsGgufsBitForBit) {
  const std::string name = GetParam().name;
  const auto file =
      SafetensorsFile::Open(std::filesystem::path(PD_TEST_DATA) / "models" / "quants.safetensors");
  std::map<std::string, const SafetensorsTensor*> tensors;
  for (const SafetensorsTensor& tensor : file->tensors()) tensors[tensor.name] = &tensor;
  const SafetensorsTensor &raw = *tensors.at(name + ".raw"), &expected = *tensors.at(name + ".expected");
  ASSERT_EQ(expected.dtype, "F32");
  ASSERT_GE(expected.shape[0], 32);
  const TensorView view{
      .name = name, .type = GetParam().type, .shape = expected.shape, .bytes = raw.bytes, .owner = file};
  ASSERT_EQ(raw.bytes.size(), size_t(view.rows()) * view.row_bytes());
  const std::vector<float> values = view.ReadAll();
  ASSERT_EQ(values.size() * sizeof(float), expected.bytes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, expected.bytes.data() + i * sizeof bits, sizeof bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), bits) << "value " << i;
  }
  // The same from an odd address and for a row alone.
  std::vector<std::byte> moved(view.row_bytes() + 1);
  std::memcpy(moved.data() + 1, view.Row(view.rows() - 1), view.row_bytes());
  std::vector<float> row(size_t(view.columns()));
  DequantizeRow(view.type, moved.data() + 1, row);
  EXPECT_EQ(std::memcmp(row.data(), &values[values.size() - row.size()], row.size() * sizeof(float)), 0);
}

TEST(AffineCodes, AreABitStream) {
  // 5-bit codes 1, 2, 3, ... 8: five bytes, the first code lowest.
  const std::byte five[] = {std::byte(0x41), std::byte(0x0c), std::byte(0x52), std::byte(0xcc),
                            std::byte(0x41)};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(ReadCode(five, 5, i), uint32_t(i + 1));
  for (int bits : {2, 3, 4, 5, 6, 8}) EXPECT_EQ(AffineBits(AffineType(bits)), bits);
  EXPECT_EQ(AffineBits(AffineType(7)), 0);
}

INSTANTIATE_TEST_SUITE_P(Each, Dequantize,
                         ::testing::Values(Format{"F16", DType::kF16}, Format{"BF16", DType::kBF16},
                                           Format{"Q8_0", DType::kQ8_0}, Format{"Q4_0", DType::kQ4_0},
                                           Format{"Q4_1", DType::kQ4_1}, Format{"Q5_0", DType::kQ5_0},
                                           Format{"Q5_1", DType::kQ5_1}, Format{"Q4_K", DType::kQ4K},
                                           Format{"Q5_K", DType::kQ5K}, Format{"Q6_K", DType::kQ6K}),
                         [](const auto& format) { return format.param.name; });

}  // namespace
}  // namespace pd::test
