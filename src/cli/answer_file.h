// Where `batch` writes its answers, and continues after an interruption.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace pd::cli {

// Answers in the order of their questions. A file is continued when every line of it answers its question,
// under the settings of this run; the half line that a killed run left is cut off, so that no answer is lost
// and none comes twice. Any other file is refused and stays as it is. Devices, pipes and "-" (standard
// output) get all answers. One thread.
class AnswerFile {
 public:
  // Examines the output and changes nothing. Throws kBadRequest for a file that holds anything but such
  // answers, naming the line, for an output that is one of `inputs` (CheckOutput), and while another batch
  // writes it; kDevice for one that cannot be read or written. `questions` must outlive this object.
  AnswerFile(std::filesystem::path path, std::span<const std::string_view> questions,
             std::span<const std::filesystem::path> inputs);
  ~AnswerFile();
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  size_t done() const { return done_; }  // answers there, whether of this run or an earlier one

  // Opens the output for answers that `settings`, an object, decide on. Throws kBadRequest that names each
  // setting in which the earlier run differs.
  void Start(const Json& settings);
  // What the answer to this question says of the run: BatchLine::run.
  Json RunOf(size_t index) const;
  // Lines of BatchAnswer or BatchError, in any order; written as soon as all before it are. False when
  // whoever read the output went away.
  bool Add(size_t index, std::string line);

 private:
  std::string StartOf(size_t index) const;  // that the answer begins with; empty beyond the last question
  void Examine();
  void ExamineLine(std::string_view line);
  void CheckSettings(const Json& settings) const;
  [[noreturn]] void Refuse(const std::string& what) const;

  const std::filesystem::path path_;
  const std::span<const std::string_view> questions_;
  int file_ = -1;
  bool resumable_ = true;
  uint64_t whole_ = 0;  // bytes of whole answers
  size_t done_ = 0;
  std::string first_;  // line, of an earlier run
  Json settings_;      // of this run
  std::string run_;    // their digest
  std::map<size_t, std::string> waiting_;
};

}  // namespace pd::cli
