#include "coreml/package/blob.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pd {
namespace {

using mil::DataType;

constexpr uint64_t kAlignment = 64;
constexpr uint32_t kVersion = 2, kSentinel = 0xDEADBEEF;

struct Header {
  uint32_t count = 0, version = kVersion;
  std::array<uint64_t, 7> reserved{};
};
static_assert(sizeof(Header) == kAlignment);

struct Metadata {
  uint32_t sentinel = kSentinel, type = 0;
  uint64_t size = 0, data = 0, padding = 0;  // bytes, offset in the file, bits
  std::array<uint64_t, 4> reserved{};        // older writers left garbage here
};
static_assert(sizeof(Metadata) == kAlignment);

// The weight file numbers types from 1 in this order.
constexpr std::array kStored = {
    DataType::kF16, DataType::kF32, DataType::kU8,  DataType::kI8,     DataType::kBF16,   DataType::kI16,
    DataType::kU16, DataType::kI4,  DataType::kU1,  DataType::kU2,     DataType::kU4,     DataType::kU3,
    DataType::kU6,  DataType::kI32, DataType::kU32, DataType::kF8E4M3, DataType::kF8E5M2,
};

uint32_t StoredNumber(DataType type) {
  for (size_t i = 0; i < kStored.size(); ++i)
    if (kStored[i] == type) return uint32_t(i + 1);
  return 0;
}

constexpr uint64_t Aligned(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

uint64_t PaddingBits(const mil::TensorType& type) {
  const int bits = mil::Bits(type.dtype);
  return bits >= 8 ? 0 : mil::ByteSize(type) * 8 - uint64_t(mil::Elements(type)) * uint64_t(bits);
}

}  // namespace

uint64_t BlobLayout::Add(const mil::TensorType& type) {
  PD_CHECK(StoredNumber(type.dtype) != 0);
  const uint64_t at = next_;
  end_ = at + sizeof(Metadata) + mil::ByteSize(type);
  next_ = Aligned(end_);
  return at;
}

BlobWriter::BlobWriter(std::filesystem::path path)
    : path_(std::move(path)), out_(path_, std::ios::binary | std::ios::trunc) {
  const Header placeholder;  // counts no records until Finish
  Write(&placeholder, sizeof placeholder);
}

uint64_t BlobWriter::Begin(const mil::TensorType& type) {
  PD_CHECK(missing_ == 0);
  constexpr std::array<std::byte, kAlignment> kZeros{};
  const uint64_t at = layout_.Add(type);
  Write(kZeros.data(), size_t(at - position_));
  missing_ = mil::ByteSize(type);
  Metadata record;
  record.type = StoredNumber(type.dtype);
  record.size = missing_;
  record.data = at + sizeof record;
  record.padding = PaddingBits(type);
  Write(&record, sizeof record);
  ++count_;
  return at;
}

void BlobWriter::Append(std::span<const std::byte> data) {
  PD_CHECK(data.size() <= missing_);
  missing_ -= data.size();
  Write(data.data(), data.size());
}

uint64_t BlobWriter::Add(const mil::TensorType& type, std::span<const std::byte> data) {
  const uint64_t at = Begin(type);
  Append(data);
  return at;
}

void BlobWriter::Finish() {
  PD_CHECK(missing_ == 0);
  Header header;
  header.count = count_;
  out_.seekp(0);
  Write(&header, sizeof header);
  out_.close();
  if (!out_)
    throw Fail(ErrorKind::kDevice, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
}

void BlobWriter::Write(const void* data, size_t size) {
  out_.write(static_cast<const char*>(data), std::streamsize(size));
  if (!out_)
    throw Fail(ErrorKind::kDevice, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
  position_ += size;
}

BlobFile::BlobFile(const std::filesystem::path& path) : file_(MappedFile::Open(path)) {
  const std::span<const std::byte> bytes = file_->bytes();
  const auto fail = [&](const std::string& what) {
    return Fail(ErrorKind::kCorruptFile, "{}: {}; export the package again", path.string(), what);
  };
  if (bytes.size() < sizeof(Header)) throw fail("shorter than its header");
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.version != kVersion)
    throw fail(fmt::format("header: version {}, expected {}", header.version, kVersion));
  for (uint64_t word : header.reserved)
    if (word != 0) throw fail("header: reserved bytes are not zero");

  uint64_t at = kAlignment, end = kAlignment;
  for (uint32_t i = 0; i < header.count; ++i) {
    const auto record_fail = [&](const std::string& what) {
      return fail(fmt::format("record {} of {} at byte {}: {}", i, header.count, at, what));
    };
    if (at > bytes.size() || bytes.size() - at < sizeof(Metadata))
      throw record_fail("past the end of the file");
    Metadata record;
    std::memcpy(&record, bytes.data() + at, sizeof record);
    if (record.sentinel != kSentinel) throw record_fail("its sentinel is missing");
    if (record.type == 0 || record.type > kStored.size())
      throw record_fail(fmt::format("unknown data type {}", record.type));
    const DataType type = kStored[record.type - 1];
    const auto bits = uint64_t(mil::Bits(type));
    if (record.data != at + sizeof record)
      throw record_fail(fmt::format("data at byte {}, expected {}", record.data, at + sizeof record));
    if (record.size > bytes.size() - record.data)
      throw record_fail(fmt::format("{} bytes of data run past the end of the file", record.size));
    const bool whole = bits >= 8 ? record.padding == 0 && record.size * 8 % bits == 0
                                 : record.padding < 8 && record.padding <= record.size * 8 &&
                                       (record.size * 8 - record.padding) % bits == 0;
    if (!whole)
      throw record_fail(fmt::format("{} bytes less {} bits of padding are not a whole number of {}",
                                    record.size, record.padding, mil::Name(type)));
    records_[at] = {type, record.data, record.size, record.padding};
    end = record.data + record.size;
    at = Aligned(end);
  }
  if (end != bytes.size())
    throw fail(fmt::format("{} bytes after the last of {} records", bytes.size() - end, header.count));
}

mil::Blob BlobFile::Find(uint64_t offset, const mil::TensorType& type, const std::string& name,
                         const std::string& where) const {
  const auto it = records_.find(offset);
  const auto fail = [&](const std::string& what) {
    return Fail(ErrorKind::kCorruptFile, "{}: {} in {}", where, what, file_->path().string());
  };
  if (it == records_.end()) throw fail(fmt::format("there is no record at offset {}", offset));
  const Record& record = it->second;
  if (record.type != type.dtype)
    throw fail(
        fmt::format("a record of {} at {} for a {}", mil::Name(record.type), offset, mil::ToString(type)));
  if (record.size != mil::ByteSize(type) || record.padding != PaddingBits(type))
    throw fail(fmt::format("a record of {} bytes at {} for a {}", record.size, offset, mil::ToString(type)));
  return {name, offset, file_->bytes().subspan(size_t(record.data), size_t(record.size)), file_};
}

}  // namespace pd
