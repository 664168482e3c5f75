#include "coreml/package/blob.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "tests/coreml/example.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

using mil::DataType;

std::string What(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
    return error.what();
  }
  return "no error";
}

TEST(Blob, EveryTypeComesBack) {
  const test::TempFolder folder;
  std::vector<std::pair<uint64_t, mil::TensorType>> records;
  {
    BlobWriter writer(folder / "weight.bin");
    BlobLayout layout;
    for (DataType type :
         {DataType::kF16, DataType::kF32, DataType::kBF16, DataType::kI8, DataType::kU8, DataType::kI16,
          DataType::kU16, DataType::kI32, DataType::kU32, DataType::kI4, DataType::kU1, DataType::kU2,
          DataType::kU3, DataType::kU4, DataType::kU6, DataType::kF8E4M3, DataType::kF8E5M2})
      for (int64_t n : {1, 3, 32, 77}) {
        const mil::TensorType tensor{type, {n}};
        records.emplace_back(writer.Add(tensor, test::Pattern(tensor)), tensor);
        EXPECT_EQ(layout.Add(tensor), records.back().first);
      }
    writer.Finish();
    EXPECT_EQ(std::filesystem::file_size(folder / "weight.bin"), layout.size());
  }
  const BlobFile file(folder / "weight.bin");
  EXPECT_EQ(records.front().first, 64u);
  for (const auto& [offset, type] : records) {
    EXPECT_EQ(offset % 64, 0u);
    const mil::Blob blob = file.Find(offset, type, kWeightFile, "test");
    const auto expected = test::Pattern(type);
    ASSERT_EQ(blob.bytes.size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), blob.bytes.begin()));
  }
}

TEST(Blob, DataComesInAnyNumberOfParts) {
  const test::TempFolder folder;
  const mil::TensorType type{DataType::kI32, {100}};
  const auto data = test::Pattern(type);
  for (size_t part : {size_t(1), size_t(7), data.size()}) {
    BlobWriter writer(folder / "weight.bin");
    writer.Begin(type);
    for (size_t at = 0; at < data.size(); at += part)
      writer.Append(std::span(data).subspan(at, std::min(part, data.size() - at)));
    writer.Finish();
    const BlobFile file(folder / "weight.bin");
    const auto bytes = file.Find(64, type, kWeightFile, "test").bytes;
    EXPECT_TRUE(std::equal(data.begin(), data.end(), bytes.begin(), bytes.end()));
  }
}

// int4 {1, -2, 7}: the low nibble first, four bits of padding.
TEST(Blob, RecordIsAsTheFormatSays) {
  const test::TempFolder folder;
  BlobWriter writer(folder / "weight.bin");
  const std::byte nibbles[] = {std::byte(0xE1), std::byte(0x07)};
  EXPECT_EQ(writer.Add({DataType::kI4, {3}}, nibbles), 64u);
  EXPECT_EQ(writer.Add({DataType::kU8, {1}}, std::span(nibbles, 1)), 192u);
  writer.Finish();
  const std::string text = ReadTextFile(folder / "weight.bin");
  ASSERT_EQ(text.size(), 257u);
  const auto word = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, text.data() + at, 8);
    return value;
  };
  EXPECT_EQ(word(0), 2 | uint64_t(2) << 32);            // two records, version 2
  EXPECT_EQ(word(64), 0xDEADBEEF | uint64_t(8) << 32);  // int4 is number 8 here
  EXPECT_EQ(word(72), 2u);
  EXPECT_EQ(word(80), 128u);
  EXPECT_EQ(word(88), 4u);
  EXPECT_EQ(text.substr(128, 2), "\xE1\x07");
  EXPECT_EQ(text.substr(130, 62), std::string(62, '\0'));
}

// Changes one field of a good file at a time; each change must be found and named.
TEST(Blob, FindsEveryCorruptField) {
  const test::TempFolder folder;
  const mil::TensorType half{DataType::kF16, {5}}, nibble{DataType::kU4, {5}};
  BlobWriter writer(folder / "good");
  const uint64_t first = writer.Add(half, test::Pattern(half)),
                 second = writer.Add(nibble, test::Pattern(nibble));
  writer.Finish();
  const std::string good = ReadTextFile(folder / "good");
  EXPECT_EQ(What([&] { BlobFile(folder / "good"); }), "no error");

  struct Change {
    uint64_t at;
    uint64_t value;
    int bytes;
    const char* expected;
  };
  const Change changes[] = {
      {0, 1, 4, "after the last of 1 records"},
      {0, 3, 4, "record 2 of 3"},
      {0, 0, 4, "after the last of 0 records"},
      {4, 1, 4, "version 1"},
      {8, 1, 8, "reserved"},
      {56, 1, 8, "reserved"},
      {first, 0xDEADBEEE, 4, "record 0 of 2 at byte 64: its sentinel is missing"},
      {first + 4, 0, 4, "unknown data type 0"},
      {first + 4, 18, 4, "unknown data type 18"},
      {first + 8, 9, 8, "are not a whole number of fp16"},
      {first + 8, uint64_t(1) << 60, 8, "past the end"},
      {first + 8, UINT64_MAX, 8, "past the end"},
      {first + 16, 64, 8, "data at byte 64, expected 128"},
      {first + 16, UINT64_MAX, 8, "data at byte"},
      {first + 24, 4, 8, "4 bits of padding"},
      {second, 0, 4, "record 1 of 2 at byte 192: its sentinel is missing"},
      {second + 24, 8, 8, "8 bits of padding"},
      {second + 24, 3, 8, "3 bits of padding"},
      {second + 8, 4, 8, "past the end"},
  };
  for (const Change& change : changes) {
    std::string bad = good;
    std::memcpy(bad.data() + change.at, &change.value, size_t(change.bytes));
    WriteFileAtomically(folder / "bad", bad);
    const std::string what = What([&] { BlobFile(folder / "bad"); });
    EXPECT_NE(what.find(change.expected), std::string::npos) << change.at << ": " << what;
    EXPECT_NE(what.find("bad"), std::string::npos) << what;
  }
  for (size_t length = 0; length < good.size(); ++length) {
    WriteFileAtomically(folder / "bad", std::string_view(good).substr(0, length));
    EXPECT_NE(What([&] { BlobFile(folder / "bad"); }), "no error") << length;
  }
}

TEST(Blob, RefusesReferencesThatDoNotFit) {
  const test::TempFolder folder;
  const mil::TensorType half{DataType::kF16, {4, 2}};
  BlobWriter writer(folder / "weight.bin");
  writer.Add(half, test::Pattern(half));
  writer.Finish();
  const BlobFile file(folder / "weight.bin");
  const auto what = [&](uint64_t offset, const mil::TensorType& type) {
    return What([&] { file.Find(offset, type, kWeightFile, "op 'w'"); });
  };
  EXPECT_EQ(what(64, half), "no error");
  EXPECT_EQ(what(64, {DataType::kF16, {8, 1, 1}}), "no error");  // the file knows no shapes
  EXPECT_NE(what(128, half).find("op 'w': there is no record at offset 128"), std::string::npos);
  EXPECT_NE(what(64, {DataType::kF16, {9}}).find("16 bytes"), std::string::npos);
  EXPECT_NE(what(64, {DataType::kBF16, {8}}).find("a record of fp16"), std::string::npos);
}

TEST(Blob, SaysWhyItCannotWrite) {
  try {
    const BlobWriter writer("/nonexistent/weight.bin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/weight.bin"), std::string::npos);
  }
}

}  // namespace
}  // namespace pd
