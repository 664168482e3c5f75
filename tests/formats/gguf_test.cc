#include "formats/gguf.h"

#include <limits>

#include "tests/expect_error.h"
#include "tests/formats/writers.h"

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
      {"ArrayOfArrays",
       kUnsupported,
       {"\"nested\"", "array of arrays"},
       [](GgufSpec& f) { f.entries = {List("nested", kArray, 1, Raw(uint32_t(kU8)) + Raw(uint64_t(0)))}; }},
      {"ValueType", kCorrupt, {"\"odd\"", "99"}, [](GgufSpec& f) { f.entries = {{"odd", 99, ""}}; }},
      {"ElementType", kCorrupt, {"\"odd\"", "13"}, [](GgufSpec& f) { f.entries = {List("odd", 13, 0, "")}; }},
      {"Truth",
       kCorrupt,
       {"\"flag\"", "7"},
       [](GgufSpec& f) { f.entries = {{"flag", kBool, Raw(uint8_t(7))}}; }},
      {"IntegerAboveInt64",
       kCorrupt,
       {"\"big\"", "2^63"},
       [](GgufSpec& f) { f.entries = {{"big", kU64, Raw(uint64_t(-1))}}; }},
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
      {"TypeWithdrawn", kCorrupt, {"\"matrix\"", "number 4"}, [](GgufSpec& f) { f.tensors[0].type = 4; }},
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
