// A folder that is gone when the test is over.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/files.h"

namespace pd::test {

class TempFolder {
 public:
  TempFolder() {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("pd_cli_test." + std::to_string(getpid()) + "." + std::to_string(number++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string Write(const std::string& name, std::string_view text) const {
    WriteFileAtomically(path_ / name, text);
    return *this / name;
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
