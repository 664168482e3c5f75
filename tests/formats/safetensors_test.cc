#include "formats/safetensors.h"
#include "base/json.h"

#include "tests/expect_error.h"
#include "tests/formats/writers.h"

namespace pd::test {
namespace {

std::shared_ptr<const SafetensorsFile> Parse(const std::string& bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  const auto span = std::as_bytes(std::span(owner->data(), owner->size()));
  return SafetensorsFile::Parse(span, owner, "f.safetensors");
}

SafetensorsSpec Valid() {
  return {{{"a", "F32", {2, 3}, std::string(24, 'a')},
           {"b", "BF16", {4}, std::string(8, 'b')},
           {"none", "F16", {0, 7}, ""},
           {"scalar", "I64", {}, std::string(8, 's')}}};
}

TEST(Safetensors, FindsTensors) {
  Json header = Valid().Header();
  header["__metadata__"] = {{"format", "pt"}};
  for (const std::string& text : {header.dump(), header.dump() + "     ", header.dump(2)}) {
    const auto file = Parse(Valid().Bytes(text));
    ASSERT_EQ(file->tensors().size(), 4u);
    const SafetensorsTensor& a = file->tensors()[0];
    EXPECT_EQ(a.name, "a");
    EXPECT_EQ(a.dtype, "F32");
    EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(a.bytes.size(), 24u);
    EXPECT_EQ(a.bytes.front(), std::byte('a'));
    EXPECT_EQ(a.bytes.back(), std::byte('a'));
    EXPECT_EQ(file->tensors()[1].bytes.front(), std::byte('b'));
    EXPECT_EQ(file->tensors()[3].bytes.back(), std::byte('s'));
  }
}

TEST(SafetensorsBadInput, EveryTruncationIsSeen) {
  const std::string whole = Valid().Bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    ExpectError(ErrorKind::kCorruptFile, {"f.safetensors"}, [&] { Parse(whole.substr(0, size)); });
  }
}

TEST(Safetensors, MetadataMayBeNull) {
  const SafetensorsSpec spec = Valid();
  Json header = spec.Header();
  header["__metadata__"] = nullptr;
  EXPECT_EQ(Parse(spec.Bytes(header.dump()))->tensors().size(), spec.tensors.size());
}

struct BadHeader {
  const char* name;
  ErrorKind kind;
  std::vector<const char*> named;
  std::string (*bytes)(SafetensorsSpec&);
};
void PrintTo(const BadHeader& bad, std::ostream* out) { *out << bad.name; }

class SafetensorsBadInputs : public ::testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsBadInputs, AreRefused) {
  SafetensorsSpec spec = Valid();
  const std::string bytes = GetParam().bytes(spec);
  for (const char* named : GetParam().named)
    ExpectError(GetParam().kind, {"f.safetensors", named}, [&] { Parse(bytes); });
}

// The valid file with one entry's field replaced.
template <class T>
std::string With(SafetensorsSpec& spec, const char* tensor, const char* field, T value) {
  Json header = spec.Header();
  header[tensor][field] = value;
  return spec.Bytes(header.dump());
}

constexpr ErrorKind kCorrupt = ErrorKind::kCorruptFile, kUnsupported = ErrorKind::kUnsupported;

std::vector<BadHeader> AllSafetensorsBadInputs() {
  return {
      {"HeaderLengthHuge",
       kCorrupt,
       {"18446744073709551615", "download"},
       [](SafetensorsSpec&) { return Raw(uint64_t(-1)) + "{}"; }},
      {"HeaderLengthWraps",
       kCorrupt,
       {"header"},
       [](SafetensorsSpec&) { return Raw(uint64_t(0) - 8) + "{}"; }},
      {"HeaderTooLarge",
       kUnsupported,
       {"larger"},
       [](SafetensorsSpec&) { return Raw(uint64_t(40) << 20) + std::string(size_t(40) << 20, ' '); }},
      {"HeaderNoJson",
       kCorrupt,
       {"header", "parse error"},
       [](SafetensorsSpec& f) { return f.Bytes("{\"a\""); }},
      {"HeaderNoObject", kCorrupt, {"JSON object"}, [](SafetensorsSpec& f) { return f.Bytes("[1]"); }},
      {"HeaderDeep",
       kCorrupt,
       {"deeper"},
       [](SafetensorsSpec& f) { return f.Bytes(std::string(1000, '[')); }},
      {"NameTwice",
       kCorrupt,
       {"\"a\"", "twice"},
       [](SafetensorsSpec& f) {
         std::string header = f.Header().dump();
         header.replace(header.find("\"b\""), 3, "\"a\"");
         return f.Bytes(header);
       }},
      {"FieldMissing",
       kCorrupt,
       {"\"a\"", "dtype, shape"},
       [](SafetensorsSpec& f) {
         Json header = f.Header();
         header["a"].erase("shape");
         return f.Bytes(header.dump());
       }},
      {"FieldUnknown",
       kCorrupt,
       {"\"a\"", "dtype, shape"},
       [](SafetensorsSpec& f) { return With(f, "a", "order", "C"); }},
      {"DtypeNumber", kCorrupt, {"\"a\""}, [](SafetensorsSpec& f) { return With(f, "a", "dtype", 3); }},
      {"DtypeUnknown",
       kUnsupported,
       {"\"a\"", "F31"},
       [](SafetensorsSpec& f) { return With(f, "a", "dtype", "F31"); }},
      {"ShapeNegative",
       kCorrupt,
       {"\"a\"", "shape"},
       [](SafetensorsSpec& f) { return With(f, "a", "shape", Json{-2, -3}); }},
      {"ShapeFraction",
       kCorrupt,
       {"\"a\"", "shape"},
       [](SafetensorsSpec& f) { return With(f, "a", "shape", Json{1.5, 4}); }},
      {"ShapeOverflow",
       kCorrupt,
       {"\"a\"", "overflows"},
       [](SafetensorsSpec& f) { return With(f, "a", "shape", Json{int64_t(1) << 40, int64_t(1) << 40}); }},
      {"ShapeOverflowToTheTrueSize",
       kCorrupt,
       {"\"a\"", "overflows"},
       [](SafetensorsSpec& f) { return With(f, "a", "shape", Json{(int64_t(1) << 62) + 2, 3}); }},
      {"ShapeNotTheBytes",
       kCorrupt,
       {"\"a\"", "28", "24"},
       [](SafetensorsSpec& f) { return With(f, "a", "shape", Json{7}); }},
      {"OffsetsThree",
       kCorrupt,
       {"\"a\""},
       [](SafetensorsSpec& f) { return With(f, "a", "data_offsets", Json{0, 24, 48}); }},
      {"OffsetsDescending",
       kCorrupt,
       {"\"a\"", "ascending"},
       [](SafetensorsSpec& f) { return With(f, "a", "data_offsets", Json{24, 0}); }},
      {"OffsetsNegative",
       kCorrupt,
       {"\"a\"", "ascending"},
       [](SafetensorsSpec& f) { return With(f, "a", "data_offsets", Json{-24, 0}); }},
      {"OffsetsOutside",
       kCorrupt,
       {"\"a\"", "cut short"},
       [](SafetensorsSpec& f) { return With(f, "a", "data_offsets", Json{1000, 1024}); }},
      {"Overlap",
       kCorrupt,
       {"\"b\"", "inside"},
       [](SafetensorsSpec& f) { return With(f, "b", "data_offsets", Json{16, 24}); }},
      {"Gap",
       kCorrupt,
       {"\"none\"", "gap"},
       [](SafetensorsSpec& f) {
         Json header = f.Header();
         header.erase("b");
         return f.Bytes(header.dump());
       }},
      {"BytesAfter", kCorrupt, {"3 bytes follow"}, [](SafetensorsSpec& f) { return f.Bytes() + "xyz"; }},
      {"ShardShorterThanItsHeader",
       kCorrupt,
       {"\"scalar\"", "cut short", "download"},
       [](SafetensorsSpec& f) {
         const std::string bytes = f.Bytes();
         return bytes.substr(0, bytes.size() - 1);
       }},
      {"Metadata", kCorrupt, {"__metadata__"}, [](SafetensorsSpec& f) {
         Json header = f.Header();
         header["__metadata__"] = {{"format", 3}};
         return f.Bytes(header.dump());
       }}};
}

INSTANTIATE_TEST_SUITE_P(Each, SafetensorsBadInputs, ::testing::ValuesIn(AllSafetensorsBadInputs()),
                         [](const auto& bad) { return bad.param.name; });

}  // namespace
}  // namespace pd::test
