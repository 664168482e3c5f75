// A folder that is gone when the test is over.
#pragma once
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "base/files.h"

namespace pd::test {

// Of its owner alone: no other test, and no earlier run, has used its name.
class TempFolder {
 public:
  TempFolder() {
    std::string name = std::filesystem::temp_directory_path() / "pd_test.XXXXXX";
    if (!mkdtemp(name.data())) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  // Writes a file into the folder and returns its path.
  std::filesystem::path Write(const std::string& name, std::string_view bytes) const {
    WriteFileAtomically(path_ / name, bytes);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// A copy of a tiny model of tests/data, to be damaged.
inline void CopyModel(const std::string& name, const std::filesystem::path& to) {
  std::filesystem::copy(
      std::filesystem::path(PD_TEST_DATA) / "models" / name, to,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
}

}  // namespace pd::test
