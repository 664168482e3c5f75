// The language of src/mlx/gpu/*.kernel for a processor: the threads of a threadgroup take turns, and every
// shuffle, barrier and matrix product is a place where they meet. Include it last: it takes words like
// `device` for itself.
#pragma once
#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace simt {

struct uint3 {
  int x, y, z;
};

// Runs one threadgroup after the other on this thread.
class Machine {
 public:
  static Machine& Get() {
    static Machine machine;
    return machine;
  }

  void Run(uint3 groups, int threads, std::function<void()> kernel) {
    kernel_ = std::move(kernel);
    group_count = groups;
    contexts_.resize(size_t(threads));
    stacks_.resize(size_t(threads));
    exchange_.assign(size_t(threads), {});
    for (auto& stack : stacks_) stack.resize(48 << 10);
    for (group.z = 0; group.z < groups.z; ++group.z)
      for (group.y = 0; group.y < groups.y; ++group.y)
        for (group.x = 0; group.x < groups.x; ++group.x) RunGroup(threads);
  }

  // Lets the others of the threadgroup come as far.
  void Meet() { swapcontext(&contexts_[size_t(thread)], &scheduler_); }

  void Barrier() {
    const int passing = passed_;
    if (++waiting_ == int(contexts_.size())) waiting_ = 0, ++passed_;
    do Meet();
    while (passed_ == passing);
  }

  // Everyone in the warp leaves N words; afterwards word i of lane l is Of(l)[i], until the next but one
  // exchange.
  void Leave(const uint32_t* words, int n) {
    Exchange& mine = exchange_[size_t(thread)];
    mine.turn ^= 1;
    std::copy(words, words + n, mine.words[size_t(mine.turn)].begin());
    Meet();
  }
  const uint32_t* Of(int lane) const {
    const auto turn = size_t(exchange_[size_t(thread)].turn);
    return exchange_[size_t(thread / 32 * 32 + lane)].words[turn].data();
  }

  // A thread's copies into the threadgroup's memory happen when it waits for them, not before.
  void CopyLater(unsigned char* to, const unsigned char* from, int n) {
    copies_[size_t(thread)].back().push_back({to, from, n});
  }
  void Commit() { copies_[size_t(thread)].emplace_back(); }
  // All but the last `later` that were committed.
  void WaitForCopies(int later) {
    auto& mine = copies_[size_t(thread)];  // the last of them is not committed yet
    for (; int(mine.size()) > later + 1; mine.pop_front())
      for (const LateCopy& copy : mine.front()) std::memcpy(copy.to, copy.from, size_t(copy.n));
  }

  uint3 group{}, group_count{};
  int thread = 0;

 private:
  struct Exchange {
    int turn = 0;
    std::array<std::array<uint32_t, 8>, 2> words{};
  };

  struct LateCopy {
    unsigned char* to;
    const unsigned char* from;
    int n;
  };

  static void Enter() {
    Machine& m = Get();
    m.kernel_();
    m.done_[size_t(m.thread)] = true;
    m.Meet();
  }

  void RunGroup(int threads) {
    done_.assign(size_t(threads), false);
    copies_.assign(size_t(threads), std::deque<std::vector<LateCopy>>(1));
    waiting_ = 0;
    for (size_t i = 0; i < size_t(threads); ++i) {
      getcontext(&contexts_[i]);
      contexts_[i].uc_stack.ss_sp = stacks_[i].data();
      contexts_[i].uc_stack.ss_size = stacks_[i].size();
      contexts_[i].uc_link = nullptr;
      makecontext(&contexts_[i], Enter, 0);
    }
    for (bool running = true; running;) {
      running = false;
      for (thread = 0; thread < threads; ++thread) {
        if (done_[size_t(thread)]) continue;
        running = true;
        swapcontext(&scheduler_, &contexts_[size_t(thread)]);
      }
    }
  }

  std::function<void()> kernel_;
  ucontext_t scheduler_{};
  std::vector<ucontext_t> contexts_;
  std::vector<std::vector<char>> stacks_;
  std::vector<bool> done_;
  std::vector<Exchange> exchange_;
  std::vector<std::deque<std::vector<LateCopy>>> copies_;  // of each thread, a group for each commit
  int waiting_ = 0, passed_ = 0;
};

// 16-bit types as the kernels use them.
template <class Bits, Bits (*Round)(float)>
struct Narrow {
  Bits value;
  Narrow() = default;
  explicit Narrow(float f) : value(Round(f)) {}
  operator float() const { return pd::ToFloat(value); }
};
using Half = Narrow<pd::F16, pd::ToF16>;
using BFloat = Narrow<pd::BF16, pd::ToBF16>;

inline void Barrier() { Machine::Get().Barrier(); }
template <class V>
V ShuffleXor(V v, int mask) {
  Machine& m = Machine::Get();
  const auto bits = std::bit_cast<uint32_t>(v);
  m.Leave(&bits, 1);
  return std::bit_cast<V>(*m.Of(m.thread % 32 ^ mask));
}
inline float Exp2(float x) { return std::exp2(x); }
inline float Exp(float x) { return std::exp(x); }
inline float Log(float x) { return std::log(x); }
inline float Tanh(float x) { return std::tanh(x); }
inline float RSqrt(float x) { return 1 / std::sqrt(x); }
inline float Max(float a, float b) { return std::fmax(a, b); }
inline int Max(int a, int b) { return a > b ? a : b; }
inline int Min(int a, int b) { return a < b ? a : b; }
inline void Fence() {}
inline int AtomicAdd(int* p, int n) { return std::exchange(*p, *p + n); }
inline float LoadFresh(const float* p) { return *p; }
inline int FloatBits(float x) { return std::bit_cast<int>(x); }

template <class T>
void CheckAligned(const T* p, size_t bytes) {
  PD_CHECK(reinterpret_cast<uintptr_t>(p) % bytes == 0);
}
template <class T>
struct Eight {
  T values[8];
};
template <class T>
Eight<T> LoadEight(const T* p) {
  CheckAligned(p, 16);
  Eight<T> e;
  std::copy(p, p + 8, e.values);
  return e;
}
template <class T>
void Floats(const Eight<T>& e, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = float(e.values[i]);
}
template <int KIND>
float Activate(float x) {
  if (KIND == 0) return x / (1 + std::exp(-x));
  return 0.5f * x * (1 + std::tanh(0.797884561f * (x + 0.044715f * x * x * x)));
}

// matrix_cuda.kernel.
template <class T>
struct Pair {
  static uint32_t Of(float low, float high) {
    const T values[2] = {T(low), T(high)};
    uint32_t word;
    std::memcpy(&word, values, 4);
    return word;
  }
  static uint32_t OfNibbles(uint32_t w) { return Of(float(w & 15), float(w >> 16 & 15)); }
  template <int FIRST>
  static uint32_t OfBytes(uint32_t w) {
    return Of(float(w >> 8 * FIRST & 255), float(w >> (8 * FIRST + 8) & 255));
  }
  static inline const uint32_t kOnes = Of(1, 1);
};
inline uint32_t LowHalves(uint32_t a, uint32_t b) { return (a & 0xffff) | b << 16; }
inline uint32_t HighHalves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000); }
template <int N>
void Copy(unsigned char* to, const unsigned char* from) {
  CheckAligned(to, N), CheckAligned(from, N);
  Machine::Get().CopyLater(to, from, N);
}
inline void CommitCopies() { Machine::Get().Commit(); }
template <int LATER>
void WaitForCopies() {
  Machine::Get().WaitForCopies(LATER);
}
inline void WarpBarrier() { Machine::Get().Meet(); }
template <int N>
void LoadShared(const unsigned char* p, uint32_t* out) {
  CheckAligned(p, 4 * N);
  std::memcpy(out, p, 4 * N);
}
template <class T>
void LoadWords(const T* p, uint32_t* out) {
  CheckAligned(p, 16);
  std::memcpy(out, p, 16);
}
// As PTX defines the fragments of mma.m16n8k16 (section "Matrix Fragments for mma.m16n8k16 with floating
// point type").
template <class T>
void MultiplyAdd(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  Machine& m = Machine::Get();
  const uint32_t mine[6] = {a0, a1, a2, a3, b0, b1};
  m.Leave(mine, 6);
  const auto half = [](uint32_t word, int which) {
    T values[2];
    std::memcpy(values, &word, 4);
    return double(float(values[which]));
  };
  const int lane = m.thread % 32;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      const uint32_t a = m.Of(row % 8 * 4 + k % 8 / 2)[row / 8 + k / 8 * 2];
      const uint32_t b = m.Of(column * 4 + k % 8 / 2)[4 + k / 8];
      sum += half(a, k % 2) * half(b, k % 2);
    }
    d[i] = float(double(d[i]) + sum);
  }
}

}  // namespace simt

#define device
#define threadgroup static
#define UNROLL
#define ROLLED
#define SIMT_PLACE                                                                   \
  [[maybe_unused]] const simt::uint3 group = simt::Machine::Get().group;             \
  [[maybe_unused]] const simt::uint3 group_count = simt::Machine::Get().group_count; \
  [[maybe_unused]] const int thread_index = simt::Machine::Get().thread;
