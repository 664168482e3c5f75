#include "formats/gguf.h"

#include <limits>

#include "tests/expect_error.h"
#include "tests/formats/writers.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

std::shared_ptr<const GgufFile> Parse(const std::string& bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  const auto span = std::as_bytes(std::span(owner->data(), owner->size()));
  return GgufFile::Parse(span, owner, "f.gguf");
}

// One entry of every value type, and tensors of three kinds.
GgufSpec Valid() {
  GgufSpec file;
  file.entries = {{"u8", kU8, Raw(uint8_t(200))},
                  {"i8", kI8, Raw(int8_t(-3))},
                  {"u16", kU16, Raw(uint16_t(65535))},
                  {"i16", kI16, Raw(int16_t(-300))},
                  U32("u32", 4000000000u),
                  {"i32", kI32, Raw(int32_t(-5))},
                  {"u64", kU64, Raw(uint64_t(1) << 62)},
                  {"i64", kI64, Raw(int64_t(-1) << 62)},
                  Float("f32", 0.1f),
                  {"f64", kF64, Raw(0.1)},
                  Flag("flag", true),
                  Text("text", "caf\xc3\xa9"),
                  List("texts", kString, 2, RawString("a") + RawString("")),
                  List("ints", kU16, 3, Raw(uint16_t(1)) + Raw(uint16_t(2)) + Raw(uint16_t(3))),
                  List("floats", kF32, 1, Raw(2.5f)),
                  List("flags", kBool, 2, Raw(uint8_t(0)) + Raw(uint8_t(1))),
                  List("nothing", kString, 0, "")};
  file.tensors = {{"matrix", {2, 3}, kTensorF32, std::string(24, 'm')},
                  {"vector", {5}, kTensorF16, std::string(10, 'v')},
                  {"blocks", {64, 2}, kTensorQ8_0, std::string(2 * 2 * 34, 'b')}};
  return file;
}

TEST(Gguf, ReadsEveryValueType) {
  for (const uint32_t version : {2u, 3u}) {
    GgufSpec spec = Valid();
    spec.version = version;
    const auto file = Parse(spec.Bytes());
    EXPECT_EQ(file->Get<int64_t>("u8"), 200);
    EXPECT_EQ(file->Get<int64_t>("i8"), -3);
    EXPECT_EQ(file->Get<int64_t>("u16"), 65535);
    EXPECT_EQ(file->Get<int64_t>("i16"), -300);
    EXPECT_EQ(file->Get<int64_t>("u32"), 4000000000);
    EXPECT_EQ(file->Get<int64_t>("i32"), -5);
    EXPECT_EQ(file->Get<int64_t>("u64"), int64_t(1) << 62);
    EXPECT_EQ(file->Get<int64_t>("i64"), int64_t(-1) << 62);
    EXPECT_EQ(file->Get<double>("f32"), double(0.1f));
    EXPECT_EQ(file->Get<double>("f64"), 0.1);
    EXPECT_EQ(file->Get<bool>("flag"), true);
    EXPECT_EQ(file->Get<std::string>("text"), "caf\xc3\xa9");
    EXPECT_EQ(file->Get<std::vector<std::string>>("texts"), (std::vector<std::string>{"a", ""}));
    EXPECT_EQ(file->Get<std::vector<int64_t>>("ints"), (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(file->Get<std::vector<double>>("floats"), std::vector<double>{2.5});
    EXPECT_EQ(file->Get<std::vector<bool>>("flags"), (std::vector<bool>{false, true}));
    EXPECT_EQ(file->Get<std::vector<std::string>>("nothing").size(), 0u);
    EXPECT_EQ(file->Find<int64_t>("absent"), nullptr);
  }
}

TEST(Gguf, FindsTensors) {
  for (const uint64_t alignment : {8u, 32u, 128u}) {
    GgufSpec spec = Valid();
    spec.alignment = alignment;
    spec.entries.push_back(U32("general.alignment", uint32_t(alignment)));
    const auto file = Parse(spec.Bytes());
    ASSERT_EQ(file->tensors().size(), 3u);
    const GgufTensor &matrix = file->tensors()[0], &vector = file->tensors()[1], &blocks = file->tensors()[2];
    EXPECT_EQ(matrix.name, "matrix");
    EXPECT_EQ(matrix.type, DType::kF32);
    EXPECT_EQ(matrix.shape, (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(vector.type, DType::kF16);
    EXPECT_EQ(vector.shape, std::vector<int64_t>{5});
    EXPECT_EQ(blocks.type, DType::kQ8_0);
    EXPECT_EQ(blocks.shape, (std::vector<int64_t>{2, 64}));
    const auto holds = [](const GgufTensor& t, size_t size, char byte) {
      return t.bytes.size() == size && t.bytes.front() == std::byte(byte) &&
             t.bytes.back() == std::byte(byte);
    };
    EXPECT_TRUE(holds(matrix, 24, 'm'));
    EXPECT_TRUE(holds(vector, 10, 'v'));
    EXPECT_TRUE(holds(blocks, 136, 'b'));
  }
}

TEST(Gguf, NamesAWrongTypeAndAMissingKey) {
  const auto file = Parse(Valid().Bytes());
  ExpectError(ErrorKind::kCorruptFile, {"f.gguf", "text", "another type"},
              [&] { file->Find<double>("text"); });
  ExpectError(ErrorKind::kCorruptFile, {"f.gguf", "absent", "missing"}, [&] { file->Get<bool>("absent"); });
}

TEST(Gguf, ValuesThatNobodyCanUseAreJudgedOnlyWhenAskedFor) {
  const std::string one_inside = Raw(uint32_t(kU8)) + Raw(uint64_t(2)) + "ab";
  GgufSpec spec = Valid();
  spec.entries = {List("nested", kArray, 1, one_inside),
                  {"truth", kBool, Raw(uint8_t(7))},
                  {"big", kU64, Raw(uint64_t(1) << 63)},
                  List("bigs", kU64, 2, Raw(uint64_t(1)) + Raw(uint64_t(-1))),
                  U32("after", 5)};
  const auto file = Parse(spec.Bytes());
  EXPECT_EQ(file->Get<int64_t>("after"), 5);
  ExpectError(ErrorKind::kCorruptFile, {"f.gguf", "\"nested\"", "array of arrays"},
              [&] { file->Find<std::vector<int64_t>>("nested"); });
  ExpectError(ErrorKind::kCorruptFile, {"\"truth\"", "7"}, [&] { file->Find<bool>("truth"); });
  ExpectError(ErrorKind::kCorruptFile, {"\"big\"", "9223372036854775808"},
              [&] { file->Find<int64_t>("big"); });
  ExpectError(ErrorKind::kCorruptFile, {"\"bigs\"", "18446744073709551615"},
              [&] { file->Find<std::vector<int64_t>>("bigs"); });
}

TEST(Gguf, WithdrawnTypesAreNamed) {
  const std::vector<std::pair<uint32_t, const char*>> types = {
      {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
      {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};
  for (const auto& [type, name] : types) {
    GgufSpec spec = Valid();
    spec.tensors[0].type = type;
    ExpectError(ErrorKind::kUnsupported, {"f.gguf", "\"matrix\"", name, "Q4_K_M"},
                [&] { Parse(spec.Bytes()); });
  }
}

// A model in two parts: the metadata in the first, a tensor in each.
class SplitGguf : public ::testing::Test {
 protected:
  SplitGguf() {
    const GgufSpec whole = Valid();
    for (uint16_t part : {0, 1}) {
      parts_[part].entries = {{"split.no", kU16, Raw(part)},
                              {"split.count", kU16, Raw(uint16_t(2))},
                              {"split.tensors.count", kI32, Raw(int32_t(2))}};
      parts_[part].tensors = {whole.tensors[part]};
    }
    parts_[0].entries.push_back(Text("general.name", "split"));
  }
  void Write() const {
    folder_.Write(kFirst, parts_[0].Bytes());
    folder_.Write(kSecond, parts_[1].Bytes());
  }
  static constexpr const char *kFirst = "m-00001-of-00002.gguf", *kSecond = "m-00002-of-00002.gguf";
  GgufSpec parts_[2];
  const TempFolder folder_;
};

TEST_F(SplitGguf, TheFirstPartIsTheWholeModel) {
  Write();
  const auto file = GgufFile::Open(folder_ / kFirst);
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "matrix");
  EXPECT_EQ(file->tensors()[1].name, "vector");
  EXPECT_EQ(file->tensors()[1].bytes.front(), std::byte('v'));
  EXPECT_EQ(file->Get<std::string>("general.name"), "split");
  EXPECT_TRUE(file->mapped());
}

TEST_F(SplitGguf, AnotherPartNamesTheFirst) {
  Write();
  ExpectError(ErrorKind::kUnsupported, {kSecond, "part 2 of 2", "give the first part", kFirst},
              [&] { GgufFile::Open(folder_ / kSecond); });
}

TEST_F(SplitGguf, PartsThatAreMissingRenamedOrForeign) {
  Write();
  std::filesystem::rename(folder_ / kSecond, folder_ / "elsewhere.gguf");
  ExpectError(ErrorKind::kNotFound, {kFirst, "part 2 of 2 is missing", kSecond},
              [&] { GgufFile::Open(folder_ / kFirst); });
  std::filesystem::rename(folder_ / kFirst, folder_ / "model.gguf");
  ExpectError(ErrorKind::kUnsupported, {"model.gguf", "-00001-of-00002.gguf"},
              [&] { GgufFile::Open(folder_ / "model.gguf"); });
  parts_[1].tensors[0].name = "matrix";
  Write();
  ExpectError(ErrorKind::kCorruptFile, {kFirst, "\"matrix\"", "different models"},
              [&] { GgufFile::Open(folder_ / kFirst); });
  parts_[1].tensors.clear();
  Write();
  ExpectError(ErrorKind::kCorruptFile, {kFirst, "1 tensors", "says 2"},
              [&] { GgufFile::Open(folder_ / kFirst); });
  parts_[1].entries[0] = {"split.no", kU16, Raw(uint16_t(0))};
  Write();
  ExpectError(ErrorKind::kCorruptFile, {kSecond, "not part 2 of 2"},
              [&] { GgufFile::Open(folder_ / kFirst); });
  parts_[0].entries[0] = {"split.no", kU16, Raw(uint16_t(2))};
  Write();
  ExpectError(ErrorKind::kCorruptFile, {kFirst, "part 3 of 2"}, [&] { GgufFile::Open(folder_ / kFirst); });
}

TEST(GgufBadInput, EveryTruncationIsSeen) {
  const std::string whole = Valid().Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    ExpectError(ErrorKind::kCorruptFile, {"f.gguf"}, [&] { Parse(whole.substr(0, size)); });
  }
}

struct BadGguf {
  const char* name;
  ErrorKind kind;
  std::vector<const char*> named;
  void (*bend)(GgufSpec&);
};
void PrintTo(const BadGguf& bad, std::ostream* out) { *out << bad.name; }

class GgufBadInputs : public ::testing::TestWithParam<BadGguf> {};

TEST_P(GgufBadInputs, AreRefused) {
  GgufSpec spec = Valid();
  GetParam().bend(spec);
  const std::string bytes = spec.Bytes();
  for (const char* named : GetParam().named)
    ExpectError(GetParam().kind, {"f.gguf", named}, [&] { Parse(bytes); });
}

constexpr ErrorKind kCorrupt = ErrorKind::kCorruptFile, kUnsupported = ErrorKind::kUnsupported;

std::vector<BadGguf> AllGgufBadInputs() {
  return {
      {"Magic", kCorrupt, {"not a GGUF file"}, [](GgufSpec& f) { f.magic = "GGML"; }},
      {"Version1", kUnsupported, {"version 1", "convert"}, [](GgufSpec& f) { f.version = 1; }},
      {"Version4", kCorrupt, {"version 4"}, [](GgufSpec& f) { f.version = 4; }},
      {"BigEndian", kUnsupported, {"big-endian"}, [](GgufSpec& f) { f.version = 3u << 24; }},
      {"TensorCount",
       kCorrupt,
       {"number of tensors", "1152921504606846976"},
       [](GgufSpec& f) { f.tensor_count = uint64_t(1) << 60; }},
      {"TensorCountOneTooMany",
       kCorrupt,
       {"name is empty"},  // the padding reads as a fourth record without a name
       [](GgufSpec& f) { f.tensor_count = 4; }},
      {"EntryCount", kCorrupt, {"metadata entries"}, [](GgufSpec& f) { f.entry_count = uint64_t(1) << 60; }},
      {"KeyLength",
       kCorrupt,
       {"metadata key", "length"},
       [](GgufSpec& f) { f.entries[0].key.resize(70000, 'k'); }},
      {"TextLength",
       kCorrupt,
       {"\"text\"", "18446744073709551615"},
       [](GgufSpec& f) { f.entries = {{"text", kString, Raw(uint64_t(-1))}}; }},
      {"ArrayLength",
       kCorrupt,
       {"length of \"huge\"", "1152921504606846976"},
       [](GgufSpec& f) { f.entries = {List("huge", kU8, uint64_t(1) << 60, "")}; }},
      {"ArrayLengthTimesSizeWraps",
       kCorrupt,
       {"length of \"huge\""},
       [](GgufSpec& f) { f.entries = {List("huge", kU64, (uint64_t(1) << 61) + 1, "")}; }},
      {"TextsLength",
       kCorrupt,
       {"length of \"huge\""},
       [](GgufSpec& f) { f.entries = {List("huge", kString, 1 << 20, "")}; }},
      {"ArraysTooDeep",
       kCorrupt,
       {"\"nested\"", "deeper"},
       [](GgufSpec& f) {
         std::string nested = Raw(uint32_t(kU8)) + Raw(uint64_t(0));
         for (int i = 0; i < 10; ++i) nested = Raw(uint32_t(kArray)) + Raw(uint64_t(1)) + nested;
         f.entries = {{"nested", kArray, nested}};
       }},
      {"ValueType", kCorrupt, {"\"odd\"", "99"}, [](GgufSpec& f) { f.entries = {{"odd", 99, ""}}; }},
      {"ElementType", kCorrupt, {"\"odd\"", "13"}, [](GgufSpec& f) { f.entries = {List("odd", 13, 0, "")}; }},
      {"KeyTwice", kCorrupt, {"\"u32\"", "twice"}, [](GgufSpec& f) { f.entries.push_back(U32("u32", 1)); }},
      {"AlignmentZero",
       kCorrupt,
       {"general.alignment"},
       [](GgufSpec& f) { f.entries.push_back(U32("general.alignment", 0)); }},
      {"AlignmentNoPower",
       kCorrupt,
       {"general.alignment", "48"},
       [](GgufSpec& f) { f.entries.push_back(U32("general.alignment", 48)); }},
      {"AlignmentHuge",
       kCorrupt,
       {"general.alignment"},
       [](GgufSpec& f) { f.entries.push_back(U32("general.alignment", 1u << 31)); }},
      {"AlignmentText",
       kCorrupt,
       {"general.alignment", "type"},
       [](GgufSpec& f) { f.entries.push_back(Text("general.alignment", "32")); }},
      {"RankZero", kCorrupt, {"\"matrix\"", "rank"}, [](GgufSpec& f) { f.tensors[0].sizes.clear(); }},
      {"RankFive",
       kCorrupt,
       {"\"matrix\"", "rank"},
       [](GgufSpec& f) { f.tensors[0].sizes = {1, 1, 1, 1, 6}; }},
      {"SizeZero", kCorrupt, {"\"matrix\"", "0"}, [](GgufSpec& f) { f.tensors[0].sizes = {0, 3}; }},
      {"SizesWrap",
       kCorrupt,
       {"\"matrix\"", "overflows"},
       [](GgufSpec& f) { f.tensors[0].sizes = {uint64_t(1) << 32, uint64_t(1) << 32}; }},
      {"SizesWrapToTheTrueSize",
       kCorrupt,
       {"\"matrix\"", "overflows"},
       [](GgufSpec& f) { f.tensors[0].sizes = {(uint64_t(1) << 62) + 2, 3}; }},  // times 4 bytes: 24 again
      {"PartOfABlock",
       kCorrupt,
       {"\"blocks\"", "48", "multiple"},
       [](GgufSpec& f) { f.tensors[2].sizes = {48, 2}; }},
      {"TypeQ2K",
       kUnsupported,
       {"\"matrix\"", "Q2_K", "Q8_0"},
       [](GgufSpec& f) { f.tensors[0].type = kTensorQ2_K; }},
      {"TypeUnknown", kCorrupt, {"\"matrix\"", "1000"}, [](GgufSpec& f) { f.tensors[0].type = 1000; }},
      {"TypeNewer",
       kUnsupported,
       {"\"matrix\"", "number 200", "does not know"},
       [](GgufSpec& f) { f.tensors[0].type = 200; }},
      {"OffsetMisaligned",
       kCorrupt,
       {"\"vector\"", "alignment"},
       [](GgufSpec& f) { f.tensors[1].offset = 33; }},
      {"OffsetOutside",
       kCorrupt,
       {"\"vector\"", "outside"},
       [](GgufSpec& f) { f.tensors[1].offset = 1 << 20; }},
      {"OffsetWraps",
       kCorrupt,
       {"\"vector\"", "outside"},
       [](GgufSpec& f) { f.tensors[1].offset = uint64_t(0) - 32; }},
      {"Overlap",
       kCorrupt,
       {"\"matrix\"", "\"vector\"", "overlap"},
       [](GgufSpec& f) { f.tensors[1].offset = 0; }},
      {"NameTwice", kCorrupt, {"\"matrix\"", "twice"}, [](GgufSpec& f) { f.tensors[1].name = "matrix"; }},
      {"NameEmpty", kCorrupt, {"name is empty"}, [](GgufSpec& f) { f.tensors[1].name = ""; }},
      {"NameOfControlCharacters", kUnsupported, {"a?b?c"}, [](GgufSpec& f) {
         f.tensors[0].name =
             "a\nb\xff"
             "c";
         f.tensors[0].type = kTensorQ2_K;
       }}};
}

INSTANTIATE_TEST_SUITE_P(Each, GgufBadInputs, ::testing::ValuesIn(AllGgufBadInputs()),
                         [](const auto& bad) { return bad.param.name; });

}  // namespace
}  // namespace pd::test
