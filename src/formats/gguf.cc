#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "base/error.h"

// The layout, all little endian: "GGUF", u32 version, u64 tensor count, u64 metadata count, the metadata
// (key, u32 type, value), the tensor records (name, u32 rank, u64 sizes innermost first, u32 type, u64
// offset), padding to `general.alignment`, and the data that offsets count from. A string is a u64 length and
// its bytes.
namespace pd {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are used where they lie in the file");

constexpr std::string_view kRemedy = "the file is damaged or cut short: download or convert it again";
constexpr uint64_t kMaxKey = 65535;  // the format's own limit for keys; names keep it too
constexpr int64_t kDefaultAlignment = 32;

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kFloat64,
  kValueTypes  // how many there are
};

// Bytes of a value, or the fewest that one can have.
constexpr size_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// What the format calls its element types, by number, those that were withdrawn too.
constexpr const char* kTensorTypes[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0"};
constexpr uint32_t kPlausibleTypes = 256;  // a number above is no type of a later version, but damage

struct ReadableType {
  const char* name;
  DType type;
};
constexpr ReadableType kReadable[] = {{"F32", DType::kF32},   {"F16", DType::kF16},   {"BF16", DType::kBF16},
                                      {"Q8_0", DType::kQ8_0}, {"Q4_0", DType::kQ4_0}, {"Q4_1", DType::kQ4_1},
                                      {"Q5_0", DType::kQ5_0}, {"Q5_1", DType::kQ5_1}, {"Q4_K", DType::kQ4K},
                                      {"Q5_K", DType::kQ5K},  {"Q6_K", DType::kQ6K}};

DType ReadableDType(uint32_t type, const std::string& where, std::string_view tensor) {
  if (type >= kPlausibleTypes)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: tensor \"{:.80}\" has the type number {}, which no format has; {}", where, tensor, type,
               kRemedy);
  if (type >= std::size(kTensorTypes))
    throw Fail(
        ErrorKind::kUnsupported,
        "{}: tensor \"{:.80}\" has the type number {}, which this version does not know: take the model "
        "as Q8_0 or Q4_K_M",
        where, tensor, type);
  const char* name = kTensorTypes[type];
  for (const ReadableType& readable : kReadable)
    if (std::string_view(name) == readable.name) return readable.type;
  throw Fail(ErrorKind::kUnsupported,
             "{}: tensor \"{:.80}\" is {}; readable are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, "
             "Q5_K and "
             "Q6_K: take the model in one of these, Q8_0 or Q4_K_M for instance",
             where, tensor, name);
}

// Reads values one after another and never past the end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <class T>
  T Read(std::string_view what) {
    T value;
    std::memcpy(&value, Take(sizeof value, what), sizeof value);
    return value;
  }

  std::string String(std::string_view what, uint64_t limit = UINT64_MAX) {
    const uint64_t length = Read<uint64_t>(what);
    if (length > left() || length > limit)
      throw Fail(ErrorKind::kCorruptFile, "{}: {} at byte {} claims a length of {}, {} bytes are left; {}",
                 where_, what, at_ - sizeof length, length, left(), kRemedy);
    return {reinterpret_cast<const char*>(Take(length, what)), size_t(length)};
  }

  // A count of things that take at least `bytes_each`: a count that cannot be true is refused before anything
  // is allocated for it.
  uint64_t Count(std::string_view what, size_t bytes_each) {
    const uint64_t count = Read<uint64_t>(what);
    if (count > left() / bytes_each)
      throw Fail(ErrorKind::kCorruptFile, "{}: {} at byte {} is {}, more than the {} bytes left can hold; {}",
                 where_, what, at_ - sizeof count, count, left(), kRemedy);
    return count;
  }

 private:
  const std::byte* Take(uint64_t count, std::string_view what) {
    if (count > left())
      throw Fail(ErrorKind::kCorruptFile, "{}: ends at byte {} inside {}; {}", where_, bytes_.size(), what,
                 kRemedy);
    const std::byte* start = bytes_.data() + at_;
    at_ += size_t(count);
    return start;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  size_t at_ = 0;
};

class MetadataReader {
 public:
  MetadataReader(Cursor& cursor, const std::string& where, std::string key)
      : cursor_(cursor),
        where_(where),
        key_(std::move(key)),
        what_(fmt::format("the value of \"{:.80}\"", key_)) {}

  GgufValue Value() {
    const uint32_t type = Type();
    return type == kArray ? Array(0) : One(type);
  }

 private:
  uint32_t Type() {
    const uint32_t type = cursor_.Read<uint32_t>(what_);
    if (type >= kValueTypes)
      throw Fail(ErrorKind::kCorruptFile, "{}: \"{:.80}\" has the value type {}, which is none; {}", where_,
                 key_, type, kRemedy);
    return type;
  }

  GgufValue One(uint32_t type) {
    switch (type) {
      case kString:
        return cursor_.String(what_);
      case kFloat32:
        return double(cursor_.Read<float>(what_));
      case kFloat64:
        return cursor_.Read<double>(what_);
      case kBool: {
        const uint8_t value = cursor_.Read<uint8_t>(what_);
        if (value > 1) return GgufUnusable{fmt::format("is a truth value of {}, not 0 or 1", value)};
        return value == 1;
      }
      case kU64: {
        const uint64_t value = cursor_.Read<uint64_t>(what_);
        if (value > uint64_t(INT64_MAX)) return GgufUnusable{fmt::format("is {}, above 2^63 - 1", value)};
        return int64_t(value);
      }
      default:
        return Integer(type);
    }
  }

  GgufValue Array(int depth) {
    constexpr int kMaxDepth = 8;
    const uint32_t type = Type();
    const uint64_t count = cursor_.Count(fmt::format("the length of \"{:.80}\"", key_), kValueBytes[type]);
    switch (type) {
      case kArray:
        if (depth == kMaxDepth)
          throw Fail(ErrorKind::kCorruptFile, "{}: \"{:.80}\" nests arrays deeper than {}; {}", where_, key_,
                     kMaxDepth, kRemedy);
        for (uint64_t i = 0; i < count; ++i) Array(depth + 1);
        return GgufUnusable{"is an array of arrays"};
      case kString:
        return Many<std::string>(count, type);
      case kBool:
        return Many<bool>(count, type);
      case kFloat32:
      case kFloat64:
        return Many<double>(count, type);
      default:
        return Many<int64_t>(count, type);
    }
  }

  template <class T>
  GgufValue Many(uint64_t count, uint32_t type) {
    std::vector<T> values;
    values.reserve(size_t(count));  // Count has seen that the file is long enough
    std::optional<GgufUnusable> unusable;
    for (uint64_t i = 0; i < count; ++i) {
      GgufValue value = One(type);
      if (auto* bad = std::get_if<GgufUnusable>(&value)) {
        if (!unusable) unusable = {fmt::format("holds an entry that {}", bad->why)};
      } else {
        values.push_back(std::move(std::get<T>(value)));
      }
    }
    if (unusable) return *unusable;
    return values;
  }

  int64_t Integer(uint32_t type) {
    switch (type) {
      case kU8:
        return cursor_.Read<uint8_t>(what_);
      case kI8:
        return cursor_.Read<int8_t>(what_);
      case kU16:
        return cursor_.Read<uint16_t>(what_);
      case kI16:
        return cursor_.Read<int16_t>(what_);
      case kU32:
        return cursor_.Read<uint32_t>(what_);
      case kI32:
        return cursor_.Read<int32_t>(what_);
      default:
        PD_CHECK(type == kI64);
        return cursor_.Read<int64_t>(what_);
    }
  }

  Cursor& cursor_;
  const std::string& where_;
  std::string key_, what_;
};

// A tensor record whose bytes are not located yet.
struct Record {
  GgufTensor tensor;
  uint64_t offset, size;  // bytes, counted from the start of the data
};

Record ReadRecord(Cursor& cursor, const std::string& where) {
  Record record;
  GgufTensor& t = record.tensor;
  t.name = cursor.String("a tensor's name", kMaxKey);
  const auto bad = [&](const std::string& why) {
    return Fail(ErrorKind::kCorruptFile, "{}: tensor \"{:.80}\": {}; {}", where, t.name, why, kRemedy);
  };
  if (t.name.empty()) throw bad("its name is empty");
  const std::string what = fmt::format("the record of tensor \"{:.80}\"", t.name);
  const uint32_t rank = cursor.Read<uint32_t>(what);
  if (rank < 1 || rank > 4) throw bad(fmt::format("its rank is {}, not 1 to 4", rank));
  t.shape.resize(rank);
  uint64_t count = 1;
  for (size_t i = rank; i-- > 0;) {
    const uint64_t size = cursor.Read<uint64_t>(what);
    if (size == 0) throw bad("one of its sizes is 0");
    // 2^59 blocks of any type stay below 2^64 bytes.
    if (__builtin_mul_overflow(count, size, &count) || count > uint64_t(1) << 59)
      throw bad("its shape overflows");
    t.shape[i] = int64_t(size);
  }
  t.type = ReadableDType(cursor.Read<uint32_t>(what), where, t.name);
  const DTypeInfo& info = Info(t.type);
  if (t.shape.back() % info.block_values != 0)
    throw bad(fmt::format("its rows of {} values are no multiple of the {} values that a block of {} has",
                          t.shape.back(), info.block_values, info.name));
  record.size = count / uint64_t(info.block_values) * uint64_t(info.block_bytes);
  record.offset = cursor.Read<uint64_t>(what);
  return record;
}

// Finds every record's bytes in `data`, the part of the file that offsets count from.
void Locate(std::vector<Record>& records, std::span<const std::byte> data, uint64_t alignment,
            const std::string& where) {
  const auto bad = [&](const Record& record, const std::string& why) {
    return Fail(ErrorKind::kCorruptFile, "{}: tensor \"{:.80}\": {}; {}", where, record.tensor.name, why,
                kRemedy);
  };
  for (Record& r : records) {
    if (r.offset % alignment != 0)
      throw bad(r, fmt::format("its offset {} is no multiple of the alignment {}", r.offset, alignment));
    if (r.offset > data.size() || r.size > data.size() - r.offset)
      throw bad(r, fmt::format("its {} bytes at offset {} end outside the {} bytes of data", r.size, r.offset,
                               data.size()));
    r.tensor.bytes = data.subspan(size_t(r.offset), size_t(r.size));
  }
  std::vector<const Record*> order;
  for (const Record& r : records) order.push_back(&r);
  std::sort(order.begin(), order.end(),
            [](const Record* a, const Record* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset < order[i - 1]->offset + order[i - 1]->size)
      throw bad(*order[i], fmt::format("its bytes overlap those of \"{:.80}\"", order[i - 1]->tensor.name));

  std::sort(order.begin(), order.end(),
            [](const Record* a, const Record* b) { return a->tensor.name < b->tensor.name; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->tensor.name == order[i - 1]->tensor.name) throw bad(*order[i], "its name stands twice");
}

constexpr int64_t kMaxParts = 99999;  // what five digits can number

// What the name of a part ends in; parts count from 0, their names from 1.
std::string PartEnding(int64_t part, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, count);
}

void CheckHeader(Cursor& cursor, const std::string& where) {
  if (cursor.left() < 4 || cursor.Read<uint32_t>("the magic number") != 0x46554747)  // "GGUF"
    throw Fail(ErrorKind::kCorruptFile, "{}: does not begin with \"GGUF\": not a GGUF file", where);
  const uint32_t version = cursor.Read<uint32_t>("the version");
  if (version == 2 || version == 3) return;
  if (version == 2u << 24 || version == 3u << 24)
    throw Fail(ErrorKind::kUnsupported, "{}: big-endian GGUF; take or convert the little-endian form", where);
  throw Fail(version == 1 ? ErrorKind::kUnsupported : ErrorKind::kCorruptFile,
             "{}: GGUF version {}; readable are 2 and 3: convert the model again", where, version);
}

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::Open(const std::filesystem::path& path) {
  auto mapped = MappedFile::Open(path);
  const std::span<const std::byte> bytes = mapped->bytes();
  const auto file = Read(bytes, std::move(mapped), path.string(), true);
  file->AddParts(path);
  return file;
}

std::shared_ptr<const GgufFile> GgufFile::Parse(std::span<const std::byte> bytes,
                                                std::shared_ptr<const void> owner, std::string where,
                                                bool mapped) {
  return Read(bytes, std::move(owner), std::move(where), mapped);
}

std::shared_ptr<GgufFile> GgufFile::Read(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                         std::string where, bool mapped) {
  auto file = std::make_shared<GgufFile>();
  file->where_ = std::move(where);
  file->owners_.push_back(std::move(owner));
  file->mapped_ = mapped;
  const std::string& name = file->where_;
  Cursor cursor(bytes, name);
  CheckHeader(cursor, name);
  // A record has a name's length, a rank, one size, a type and an offset; an entry a key's length, a type and
  // a value.
  const uint64_t tensors = cursor.Count("the number of tensors", 8 + 4 + 8 + 4 + 8);
  const uint64_t entries = cursor.Count("the number of metadata entries", 8 + 4 + 1);
  for (uint64_t i = 0; i < entries; ++i) {
    std::string key = cursor.String("a metadata key", kMaxKey);
    GgufValue value = MetadataReader(cursor, name, key).Value();
    if (!file->metadata_.emplace(key, std::move(value)).second)
      throw Fail(ErrorKind::kCorruptFile, "{}: the key \"{:.80}\" stands twice; {}", name, key, kRemedy);
  }
  const int64_t* given = file->Find<int64_t>("general.alignment");
  const int64_t alignment = given ? *given : kDefaultAlignment;
  if (alignment < 8 || alignment > 1 << 20 || !std::has_single_bit(uint64_t(alignment)))
    throw Fail(ErrorKind::kCorruptFile,
               "{}: \"general.alignment\" is {}, not a power of two from 8 to 2^20; {}", name, alignment,
               kRemedy);

  std::vector<Record> records;
  records.reserve(size_t(tensors));
  for (uint64_t i = 0; i < tensors; ++i) records.push_back(ReadRecord(cursor, name));
  const size_t mask = size_t(alignment) - 1, start = (cursor.at() + mask) & ~mask;
  Locate(records, bytes.subspan(std::min(start, bytes.size())), uint64_t(alignment), name);
  for (Record& record : records) file->tensors_.push_back(std::move(record.tensor));
  return file;
}

void GgufFile::AddParts(const std::filesystem::path& first) {
  const int64_t* count = Find<int64_t>("split.count");
  if (!count || *count <= 1) return;
  const int64_t* given = Find<int64_t>("split.no");
  const int64_t number = given ? *given : 0;
  const std::string name = first.filename().string(), ending = PartEnding(number, *count);
  if (*count > kMaxParts || number < 0 || number >= *count)
    throw Fail(ErrorKind::kCorruptFile, "{}: part {} of {} of a split model; {}", where_, number + 1, *count,
               kRemedy);
  if (!name.ends_with(ending))
    throw Fail(ErrorKind::kUnsupported,
               "{}: part {} of {} of a split model, and its name does not end in \"{}\", by which the parts "
               "find each other: give all parts their names back",
               where_, number + 1, *count, ending);
  const std::string stem = name.substr(0, name.size() - ending.size());
  const auto path_of = [&](int64_t part) { return first.parent_path() / (stem + PartEnding(part, *count)); };
  if (number != 0)
    throw Fail(ErrorKind::kUnsupported, "{}: part {} of {} of a split model; give the first part, {}", where_,
               number + 1, *count, path_of(0).string());
  for (int64_t part = 1; part < *count; ++part) {
    const std::filesystem::path path = path_of(part);
    if (!std::filesystem::exists(path))
      throw Fail(ErrorKind::kNotFound, "{}: part {} of {} is missing; download it to {}", where_, part + 1,
                 *count, path.string());
    auto mapped = MappedFile::Open(path);
    const std::span<const std::byte> bytes = mapped->bytes();
    const auto other = Read(bytes, std::move(mapped), path.string(), true);
    const int64_t* other_number = other->Find<int64_t>("split.no");
    const int64_t* other_count = other->Find<int64_t>("split.count");
    if (!other_number || !other_count || *other_number != part || *other_count != *count)
      throw Fail(ErrorKind::kCorruptFile, "{}: not part {} of {} of {}; download all parts again",
                 path.string(), part + 1, *count, where_);
    owners_.insert(owners_.end(), other->owners_.begin(), other->owners_.end());
    tensors_.insert(tensors_.end(), other->tensors_.begin(), other->tensors_.end());
  }
  std::set<std::string_view> names;
  for (const GgufTensor& tensor : tensors_)
    if (!names.insert(tensor.name).second)
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: two parts have the tensor \"{:.80}\": they are of different models; download all parts "
                 "again",
                 where_, tensor.name);
  const int64_t* total = Find<int64_t>("split.tensors.count");
  if (total && *total != int64_t(tensors_.size()))
    throw Fail(ErrorKind::kCorruptFile,
               "{}: the {} parts have {} tensors, split.tensors.count says {}; download all parts again",
               where_, *count, tensors_.size(), *total);
}

void GgufFile::Refuse(std::string_view key, const GgufValue& value) const {
  const auto* unusable = std::get_if<GgufUnusable>(&value);
  throw Fail(ErrorKind::kCorruptFile, "{}: \"{:.80}\" {}; convert the model again", where_, key,
             unusable ? unusable->why : "has a value of another type");
}

void GgufFile::Missing(std::string_view key) const {
  throw Fail(ErrorKind::kCorruptFile, "{}: \"{:.80}\" is missing; convert the model again", where_, key);
}

}  // namespace pd
