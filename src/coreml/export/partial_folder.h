// A folder that appears complete or not at all.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace pd {

// A file in a folder that is being written; locked by the process that writes.
inline constexpr const char* kPartialMark = ".pd-engine-export";

// Lies beside `target`, as target.partial-PID, until Publish puts it there. Removed by the destructor when it
// was not published; what a killed process left behind is removed by the next one for the same target. Where
// `target` is a link, what it leads to is replaced.
class PartialFolder {
 public:
  // The files of a folder that may be replaced, by their path there. Throws kBadRequest for a folder that
  // must stay as it is.
  using OwnFiles = std::function<std::vector<std::string>(const std::filesystem::path&)>;

  // Throws kBadRequest when `target` exists, unless it is an empty folder or one that `own_files` lists;
  // kDevice when the folder cannot be made.
  PartialFolder(const std::filesystem::path& target, OwnFiles own_files);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Exchanges the two folders, where the system can in one step, and removes of the old one what `own_files`
  // lists: anything else moves to the new one, or stays behind in the old. Throws kDevice, and kBadRequest
  // when something came to `target` since the beginning.
  void Publish();

 private:
  void CheckTarget() const;
  bool ReplacesTarget() const;
  void RemoveLeftovers() const;
  void Make();
  void Mark();

  std::filesystem::path target_, path_;
  OwnFiles own_files_;
  int mark_ = -1;  // descriptor
  bool published_ = false;
};

}  // namespace pd
