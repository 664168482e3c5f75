// A folder that appears complete or not at all.
#pragma once
#include <filesystem>
#include <string>

namespace pd {

// Lies beside `target`, as target.partial-PID, until Publish renames it. Removed by the destructor when it
// was not published; what a killed process left behind is removed by the next one for the same target.
class PartialFolder {
 public:
  // Throws kBadRequest when `target` exists, unless it is an empty folder or one that holds `marker`: that is
  // replaced by Publish.
  PartialFolder(const std::filesystem::path& target, std::string marker);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void Publish();  // throws kDevice

 private:
  std::filesystem::path target_, path_;
  std::string marker_;
  bool published_ = false;
};

}  // namespace pd
