#include "cli/part_log.h"

#include <fmt/format.h>

#include "cli/terminal.h"

namespace pd::cli {
namespace {

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

PartLog::PartLog(std::chrono::milliseconds every) : every_(every), watch_([this] { Watch(); }) {}

PartLog::~PartLog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  watch_.join();
}

void PartLog::Show(const std::string& part, int done, int total) {
  {
    const std::lock_guard lock(mutex_);
    if (part != part_) {
      EndPart();
      part_ = part;
      began_ = said_ = Clock::now();
    }
    done_ = done, total_ = total;
  }
  wake_.notify_all();
}

void PartLog::End() {
  const std::lock_guard lock(mutex_);
  EndPart();
}

void PartLog::EndPart() {
  if (!part_.empty()) Say(fmt::format("{}: done in {:.1f} s", part_, Seconds(Clock::now() - began_)));
  part_.clear();
}

void PartLog::Say(const std::string& line) {
  Report(line + "\n");
  said_ = Clock::now();
}

void PartLog::Watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (part_.empty()) {
      wake_.wait(lock);
    } else if (Clock::now() < said_ + every_) {
      wake_.wait_until(lock, said_ + every_);
    } else {
      Say(fmt::format("{}: {}{:.0f} s so far", part_,
                      total_ > 0 ? fmt::format("{} of {}, ", done_, total_) : "",
                      Seconds(Clock::now() - began_)));
    }
  }
}

}  // namespace pd::cli
