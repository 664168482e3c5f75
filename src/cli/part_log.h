// How far a long work of several parts is, on standard error.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace pd::cli {

// Writes a line for each part as it ends, and every few seconds one that says which part is how far, even
// while nobody calls. Each line is out at once, be it to a terminal, a file or a pipe. One thread's, but for
// the one of its own that it writes those lines from.
class PartLog {
 public:
  explicit PartLog(std::chrono::milliseconds every = std::chrono::seconds(5));
  ~PartLog();  // writes no line: a part that End was not called for has not ended
  PartLog(const PartLog&) = delete;
  PartLog& operator=(const PartLog&) = delete;

  // `part` goes on with `done` of `total`; 0: nobody knows how much there is. Another part before it has
  // ended.
  void Show(const std::string& part, int done = 0, int total = 0);
  void End();

 private:
  using Clock = std::chrono::steady_clock;
  void EndPart();  // these: with mutex_ held
  void Say(const std::string& line);
  void Watch();

  const std::chrono::milliseconds every_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string part_;  // empty: none
  int done_ = 0, total_ = 0;
  Clock::time_point began_, said_;
  bool stop_ = false;
  std::thread watch_;
};

}  // namespace pd::cli
