// A GGUF file of metadata alone, in memory: for tokenizers that no converter would write.
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "formats/gguf.h"

namespace pd {

class MetadataWriter {
 public:
  MetadataWriter& Add(const std::string& key, const std::string& value) {
    Key(key, 8);
    Text(value);
    return *this;
  }
  MetadataWriter& Add(const std::string& key, const char* value) { return Add(key, std::string(value)); }
  MetadataWriter& Add(const std::string& key, bool value) {
    Key(key, 7);
    body_.push_back(char(value));
    return *this;
  }
  MetadataWriter& Add(const std::string& key, int value) {
    Key(key, 4);
    Raw(uint32_t(value));
    return *this;
  }
  MetadataWriter& Add(const std::string& key, const std::vector<std::string>& values) {
    Key(key, 9);
    Raw(uint32_t(8));
    Raw(uint64_t(values.size()));
    for (const std::string& value : values) Text(value);
    return *this;
  }
  MetadataWriter& Add(const std::string& key, const std::vector<int32_t>& values) {
    return Array(key, 5, values);
  }
  MetadataWriter& Add(const std::string& key, const std::vector<float>& values) {
    return Array(key, 6, values);
  }

  std::shared_ptr<const GgufFile> Parse() const {
    auto bytes = std::make_shared<std::string>("GGUF");
    const auto append = [&](auto value) {
      bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    append(uint32_t(3));
    append(uint64_t(0));
    append(uint64_t(count_));
    *bytes += body_;
    const std::span<const std::byte> view(reinterpret_cast<const std::byte*>(bytes->data()), bytes->size());
    return GgufFile::Parse(view, bytes, "made.gguf");
  }

 private:
  template <class T>
  void Raw(T value) {
    body_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Text(const std::string& text) {
    Raw(uint64_t(text.size()));
    body_ += text;
  }
  void Key(const std::string& key, uint32_t type) {
    Text(key);
    Raw(type);
    ++count_;
  }
  template <class T>
  MetadataWriter& Array(const std::string& key, uint32_t type, const std::vector<T>& values) {
    Key(key, 9);
    Raw(type);
    Raw(uint64_t(values.size()));
    for (const T value : values) Raw(value);
    return *this;
  }

  std::string body_;
  int count_ = 0;
};

}  // namespace pd
