// Threads that work together on one step of one model.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace pd {

// A fixed set of threads that run one parallel region after another. Used by one thread at a time, which
// takes part as thread 0; regions do not nest. Starting a region allocates nothing and costs about a
// microsecond while the others still spin; threads without work for a while sleep and use no processor time.
// The owner does not wait for a late thread (asleep, or its processor taken): it does that thread's part
// itself.
class ThreadPool {
 public:
  // At least 1 thread, including the caller's. Thread i is bound to cores[i], except the caller's, which the
  // caller binds. Empty: no binding.
  explicit ThreadPool(int threads, std::vector<int> cores = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return count_; }

  // Calls f(part) once for each part in [0, threads()) and returns when all calls have returned. Thread i
  // takes part i in every region, so that its data are still in its cache, unless the owner takes it. f must
  // not throw.
  template <class F>
  void Run(F&& f) {
    using Callable = std::remove_reference_t<F>;
    RunRegion(
        [](const void* context, int part) { (*static_cast<Callable*>(const_cast<void*>(context)))(part); },
        &f);
  }

  // Calls f(begin, end) on contiguous parts of [0, count), on as many threads as get at least `grain` items
  // each. With work for fewer than two threads, one call and no region.
  template <class F>
  void Split(int64_t count, int64_t grain, F&& f) {
    const int64_t parts = std::clamp<int64_t>(count / std::max<int64_t>(grain, 1), 1, threads());
    if (parts == 1) {
      if (count > 0) f(int64_t(0), count);
      return;
    }
    Run([&](int part) {
      if (part < parts) f(count * part / parts, count * (part + 1) / parts);
    });
  }

 private:
  using Region = void (*)(const void* context, int part);
  // On its own cache line. `state` is 2 g while the part is being done for region g, 2 g + 1 afterwards: the
  // thread that sets 2 g does the part. Only equality matters, so it may wrap around.
  struct alignas(64) Worker {
    std::atomic<uint32_t> state = 1;
    std::thread thread;
  };
  void RunRegion(Region region, const void* context);
  void Work(int part);

  const int count_;
  const bool spins_;  // false when there are more threads than processors
  const std::vector<int> cores_;
  Region region_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> busy_ = false;
  alignas(64) std::atomic<uint32_t> generation_ = 0;  // g of the region to run
  std::unique_ptr<Worker[]> workers_;                 // [count - 1]; part i is worker i - 1
};

}  // namespace pd
