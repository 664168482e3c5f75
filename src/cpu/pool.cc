#include "cpu/pool.h"

#include <chrono>

#include "base/cores.h"
#include "base/error.h"

namespace pd {
namespace {

// Longer than the pause between two steps of a decode loop, too short to make the machine feel busy.
constexpr auto kSpinTime = std::chrono::microseconds(200);

inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns the first value other than `old`: polls for a while if `spins`, then sleeps until notified.
uint32_t WaitForChange(const std::atomic<uint32_t>& value, uint32_t old, bool spins) {
  if (spins) {
    const auto start = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < 64; ++i) {
        if (const uint32_t now = value.load(std::memory_order_acquire); now != old) return now;
        Relax();
      }
    } while (std::chrono::steady_clock::now() - start < kSpinTime);
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads, std::vector<int> cores)
    : count_(threads),
      spins_(threads <= int(std::thread::hardware_concurrency())),
      cores_(std::move(cores)),
      workers_(std::make_unique<Worker[]>(size_t(threads) - 1)) {
  PD_CHECK(threads >= 1 && (cores_.empty() || cores_.size() == size_t(threads)));
  for (int part = 1; part < threads; ++part)
    workers_[size_t(part) - 1].thread = std::thread([this, part] { Work(part); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++generation_;
  generation_.notify_all();
  for (int part = 1; part < count_; ++part) workers_[size_t(part) - 1].thread.join();
}

void ThreadPool::RunRegion(Region region, const void* context) {
  PD_CHECK(!busy_.exchange(true));  // regions do not nest, and a pool has one owner at a time
  region_ = region, context_ = context;
  const uint32_t doing = 2 * ++generation_;
  generation_.notify_all();
  region(context, 0);
  for (int part = 1; part < count_; ++part) {
    std::atomic<uint32_t>& state = workers_[size_t(part) - 1].state;
    uint32_t now = doing - 1;
    if (state.compare_exchange_strong(now, doing)) {  // no thread has taken it
      region(context, part);
      state = doing + 1;
    } else if (now == doing) {
      WaitForChange(state, doing, spins_);
    }
  }
  busy_ = false;
}

void ThreadPool::Work(int part) {
  if (!cores_.empty()) BindThisThread({&cores_[size_t(part)], 1});
  std::atomic<uint32_t>& state = workers_[size_t(part) - 1].state;
  for (uint32_t seen = 0;;) {
    seen = WaitForChange(generation_, seen, spins_);
    if (stop_) return;
    uint32_t before = 2 * seen - 1;
    if (!state.compare_exchange_strong(before, 2 * seen)) continue;  // the owner was first
    region_(context_, part);
    state = 2 * seen + 1;
    state.notify_one();
  }
}

}  // namespace pd
