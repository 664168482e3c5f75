// The tensors of a golden file by name.
#pragma once
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/safetensors.h"

namespace pd::test {

class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path) : file_(SafetensorsFile::Open(path)) {
    for (const SafetensorsTensor& t : file_->tensors()) tensors_[t.name] = &t;
  }
  bool Has(const std::string& name) const { return tensors_.contains(name); }
  // Row-major; T is the type that the file holds.
  template <class T>
  std::vector<T> Read(const std::string& name) const {
    const SafetensorsTensor& t = *tensors_.at(name);
    PD_CHECK(t.dtype == (std::is_same_v<T, float> ? "F32" : "I32"));
    std::vector<T> values(t.bytes.size() / sizeof(T));
    std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
    return values;
  }

 private:
  std::shared_ptr<const SafetensorsFile> file_;
  std::map<std::string, const SafetensorsTensor*> tensors_;
};

}  // namespace pd::test
