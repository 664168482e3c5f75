// The weight file of a package ("blob storage", version 2): a header, then records of 64 bytes of metadata
// and the data, each aligned to 64 bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "coreml/mil/program.h"

namespace pd {

// The name of the file in programs, wherever the package is.
inline constexpr const char* kWeightFile = "@model_path/weights/weight.bin";

// Gives each record its place before any data exist: the layout depends only on types and counts.
class BlobLayout {
 public:
  // Reserves one more record; returns the offset of its metadata, which programs refer to. PD_CHECKs that
  // weight files support the type (no bool, string or 64-bit types).
  uint64_t Add(const mil::TensorType& type);
  uint64_t size() const { return end_; }  // of the file

 private:
  uint64_t end_ = 64, next_ = 64;
};

// Writes a weight file from front to back, in bounded memory whatever the size of the data. Throws kDevice
// when the file cannot be written. Not thread-safe.
class BlobWriter {
 public:
  explicit BlobWriter(std::filesystem::path path);

  // Starts a record of `type`; returns the offset of its metadata.
  uint64_t Begin(const mil::TensorType& type);
  // Appends data to the running record, packed as described at mil::Value.
  void Append(std::span<const std::byte> data);
  uint64_t Add(const mil::TensorType& type, std::span<const std::byte> data);  // Begin and Append
  // Ends the last record and writes the count. PD_CHECKs that every record has as many bytes as its type
  // needs.
  void Finish();

 private:
  void Write(const void* data, size_t size);
  std::filesystem::path path_;
  std::ofstream out_;
  BlobLayout layout_;
  uint64_t position_ = 0, missing_ = 0;  // missing_: bytes the running record still needs
  uint32_t count_ = 0;
};

// A weight file opened for reading: memory-mapped, every record checked. Immutable; any thread may read.
class BlobFile {
 public:
  // Throws kNotFound, or kCorruptFile that names the record and the field.
  explicit BlobFile(const std::filesystem::path& path);

  // The data of the record at `offset`, which must hold exactly one tensor of `type`; otherwise throws
  // kCorruptFile, with a message that starts with `where`.
  mil::Blob Find(uint64_t offset, const mil::TensorType& type, const std::string& name,
                 const std::string& where) const;

 private:
  struct Record {
    mil::DataType type;
    uint64_t data, size;  // bytes
    uint64_t padding;     // unused bits of the last byte
  };
  std::shared_ptr<const MappedFile> file_;
  std::map<uint64_t, Record> records_;  // by offset
};

}  // namespace pd
