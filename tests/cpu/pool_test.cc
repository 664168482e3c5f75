#include "cpu/pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <memory>
#include <numeric>

namespace pd {
namespace {

TEST(ThreadPool, RunsOnEveryThreadOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> calls(size_t(threads), 0);
    const int regions = threads == 8 ? 300 : 3000;  // more threads than processors: each region may sleep
    for (int i = 0; i < regions; ++i) pool.Run([&](int thread) { ++calls[size_t(thread)]; });
    for (int count : calls) EXPECT_EQ(count, regions);
  }
}

TEST(ThreadPool, RegionsSeeWhatEarlierOnesWrote) {
  ThreadPool pool(2);
  std::vector<int> a(2, 0), b(2, 0);
  for (int i = 0; i < 2000; ++i) {
    pool.Run([&](int t) { a[size_t(t)] = b[size_t(1 - t)] + 1; });
    pool.Run([&](int t) { b[size_t(t)] = a[size_t(1 - t)]; });
  }
  EXPECT_EQ(b[0], 2000);
  EXPECT_EQ(b[1], 2000);
}

TEST(ThreadPool, SplitsCoverEverythingOnce) {
  ThreadPool pool(3);
  for (int64_t count : {0, 1, 2, 3, 7, 64, 1000})
    for (int64_t grain : {1, 2, 10, 2000}) {
      std::vector<int> hits(size_t(count), 0);
      pool.Split(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[size_t(i)];
      });
      EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), int64_t(0)), count);
      for (int h : hits) EXPECT_EQ(h, 1);
    }
}

TEST(ThreadPool, IdleThreadsUseNoProcessorTime) {
  ThreadPool pool(2);
  pool.Run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the time they spin
  const auto used = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  const double before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(used() - before, 0.02);
}

TEST(ThreadPool, SleepersWakeForTheNextRegion) {
  ThreadPool pool(2);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    int calls[2] = {};
    pool.Run([&](int t) { calls[t] = 1; });
    EXPECT_EQ(calls[0] + calls[1], 2);
  }
}

}  // namespace
}  // namespace pd
