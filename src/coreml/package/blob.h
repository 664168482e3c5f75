// The weight file of a package ("blob storage", version 2): a header, then records of 64 bytes of metadata
// and the data, each at a multiple of 64.
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

// What programs call the file, wherever the package lies.
inline constexpr const char* kWeightFile = "@model_path/weights/weight.bin";

// The place of each record is known before any data is: the layout depends on types and counts only.
class BlobLayout {
 public:
  // Room for one more record; returns the offset of its metadata, which is what programs refer to.
  // PD_CHECKs that weight files can hold the type (no bool, string or 64-bit types).
  uint64_t Add(const mil::TensorType& type);
  uint64_t size() const { return end_; }  // of the file

 private:
  uint64_t end_ = 64, next_ = 64;
};

// Writes a weight file front to back; memory stays bounded whatever the size of the data. Throws kDevice when
// the file cannot be written. One thread.
class BlobWriter {
 public:
  explicit BlobWriter(std::filesystem::path path);

  // Starts a record of `type`; returns the offset of its metadata.
  uint64_t Begin(const mil::TensorType& type);
  // More of the running record's data, packed as mil::Value says.
  void Append(std::span<const std::byte> data);
  uint64_t Add(const mil::TensorType& type, std::span<const std::byte> data);  // Begin and Append
  // Ends the last record and writes the count. PD_CHECKs that every record got as many bytes as its type has.
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

  // The data of the record at `offset`, which must hold exactly one tensor of `type`: kCorruptFile, starting
  // with `where`, when it does not.
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
