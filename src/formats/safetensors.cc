#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace pd {
namespace {

constexpr size_t kMaxHeader = size_t(32) << 20;  // the largest known headers have a few MiB

// Bytes per element of every type the format has, so that offsets can be checked whoever reads the tensor.
size_t ElementBytes(std::string_view dtype, const std::string& where, const std::string& name) {
  static constexpr struct {
    const char* name;
    size_t bytes;
  } kTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
                {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
                {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const auto& type : kTypes)
    if (dtype == type.name) return type.bytes;
  throw Fail(ErrorKind::kUnsupported,
             "{}: tensor \"{:.80}\" has the element type \"{:.20}\", which is not known", where, name, dtype);
}

// One entry of the header, still to be checked against its neighbours.
struct Entry {
  SafetensorsTensor tensor;
  uint64_t begin, end;  // offsets from the end of the header
};

class HeaderReader {
 public:
  HeaderReader(const std::string& where, uint64_t data_bytes) : where_(where), data_bytes_(data_bytes) {}

  Entry Read(const std::string& name, const SortedJson& json) const {
    if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
        !json.contains("data_offsets") || !json["dtype"].is_string() || !json["shape"].is_array() ||
        !json["data_offsets"].is_array() || json["data_offsets"].size() != 2)
      throw Bad(name, "its entry is not {dtype, shape, data_offsets: [begin, end]}");
    Entry entry;
    entry.tensor.name = name;
    entry.tensor.dtype = json["dtype"].get<std::string>();
    uint64_t bytes = ElementBytes(entry.tensor.dtype, where_, name);
    for (const SortedJson& dimension : json["shape"]) {
      const std::optional<uint64_t> size = Unsigned(dimension);
      if (!size || *size > uint64_t(INT64_MAX)) throw Bad(name, "its shape is not a list of sizes");
      if (__builtin_mul_overflow(bytes, *size, &bytes)) throw Bad(name, "its shape overflows");
      entry.tensor.shape.push_back(int64_t(*size));
    }
    const std::optional<uint64_t> begin = Unsigned(json["data_offsets"][0]);
    const std::optional<uint64_t> end = Unsigned(json["data_offsets"][1]);
    if (!begin || !end || *begin > *end)
      throw Bad(name, "its data_offsets are not an ascending pair of sizes");
    if (*end > data_bytes_)
      throw Bad(name,
                fmt::format("its bytes end at {} but the file holds {} bytes of data; it was cut short: "
                            "download it again",
                            *end, data_bytes_));
    if (*end - *begin != bytes)
      throw Bad(name, fmt::format("its shape and type need {} bytes, its data_offsets give {}", bytes,
                                  *end - *begin));
    entry.begin = *begin, entry.end = *end;
    return entry;
  }

 private:
  static std::optional<uint64_t> Unsigned(const SortedJson& json) {
    return json.is_number_unsigned() ? std::optional(json.get<uint64_t>()) : std::nullopt;
  }
  Error Bad(const std::string& name, const std::string& why) const {
    return Fail(ErrorKind::kCorruptFile, "{}: tensor \"{:.80}\": {}", where_, name, why);
  }
  const std::string& where_;
  uint64_t data_bytes_;
};

// The metadata is a map from string to string that says nothing about the tensors, or null.
void CheckMetadata(const SortedJson& json, const std::string& where) {
  if (json.is_null()) return;
  const bool strings = json.is_object() && std::all_of(json.begin(), json.end(), [](const SortedJson& value) {
                         return value.is_string();
                       });
  if (!strings) throw Fail(ErrorKind::kCorruptFile, "{}: __metadata__ is not a map of strings", where);
}

}  // namespace

std::shared_ptr<const SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  auto file = MappedFile::Open(path);
  const std::span<const std::byte> bytes = file->bytes();
  return Parse(bytes, std::move(file), path.string(), true);
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes,
                                                              std::shared_ptr<const void> owner,
                                                              std::string where, bool mapped) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} bytes are too few for a safetensors file; download it again",
               where, bytes.size());
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const std::span<const std::byte> rest = bytes.subspan(sizeof header_bytes);
  if (header_bytes > rest.size())
    throw Fail(
        ErrorKind::kCorruptFile,
        "{}: the header should have {} bytes but only {} follow; not a safetensors file, or cut short: "
        "download it again",
        where, header_bytes, rest.size());
  if (header_bytes > kMaxHeader)
    throw Fail(ErrorKind::kUnsupported, "{}: a header of {} bytes is larger than the {} allowed", where,
               header_bytes, kMaxHeader);
  const std::span<const std::byte> data = rest.subspan(header_bytes);
  const SortedJson header =
      ParseSortedJson({reinterpret_cast<const char*>(rest.data()), size_t(header_bytes)}, where + ": header");
  if (!header.is_object()) throw Fail(ErrorKind::kCorruptFile, "{}: the header is not a JSON object", where);

  std::vector<Entry> entries;
  const HeaderReader reader(where, data.size());
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") CheckMetadata(json, where);
    if (name != "__metadata__") entries.push_back(reader.Read(name, json));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at)
      throw Fail(ErrorKind::kCorruptFile, "{}: tensor \"{:.80}\": its bytes begin at {}, {} {}", where,
                 entry.tensor.name, entry.begin,
                 entry.begin < at ? "inside the tensor before it, which ends at" : "after a gap from", at);
    at = entry.end;
  }
  if (at != data.size())
    throw Fail(ErrorKind::kCorruptFile, "{}: {} bytes follow the last tensor; download it again", where,
               data.size() - at);

  auto file = std::make_shared<SafetensorsFile>();
  file->where_ = std::move(where);
  file->owner_ = std::move(owner);
  file->mapped_ = mapped;
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(size_t(entry.begin), size_t(entry.end - entry.begin));
    file->tensors_.push_back(std::move(entry.tensor));
  }
  return file;
}

}  // namespace pd
