// A queue between threads.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace pd {

// Thread-safe.
template <class T>
class Queue {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Queue(size_t limit = SIZE_MAX) : limit_(limit) {}

  // False when the queue is full or closed: then nothing is added.
  bool Push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || values_.size() >= limit_) return false;
      values_.push_back(std::move(value));
    }
    filled_.notify_one();
    return true;
  }

  // The same, at the front.
  bool PushFirst(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || values_.size() >= limit_) return false;
      values_.push_front(std::move(value));
    }
    filled_.notify_one();
    return true;
  }

  // Waits for a value and removes the first. PopUntil returns nullopt at the deadline.
  T Pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return !values_.empty(); });
    return Take();
  }
  std::optional<T> PopUntil(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_until(lock, deadline, [&] { return !values_.empty(); })) return std::nullopt;
    return Take();
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

  // Later pushes add nothing. Returns the values that were left.
  std::deque<T> Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(values_, {});
  }

 private:
  T Take() {
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }

  const size_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<T> values_;
  bool closed_ = false;
};

}  // namespace pd
