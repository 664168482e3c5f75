// What ops run with: threads, kernels, scratch memory.
#pragma once
#include <cstdint>
#include <memory>
#include <new>

#include "cpu/kernels/kernels.h"
#include "cpu/pool.h"

namespace pd::interp {

// Floats aligned to cache lines; grow on demand and are reused. The contents do not outlive the op.
class Scratch {
 public:
  float* Take(size_t floats) {
    if (floats > size_) {
      memory_.reset();
      memory_.reset(new (kLine) float[floats]);
      size_ = floats;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Delete {
    void operator()(float* p) const { ::operator delete[](p, kLine); }
  };
  std::unique_ptr<float[], Delete> memory_;
  size_t size_ = 0;
};

// Owned by an interpreter; used by its thread and, within an op, by the pool's threads.
struct Machine {
  ThreadPool& pool;
  const cpu::Kernels& kernels;
  Scratch rows, tiles;  // operands of products, in the kernels' form
  Scratch scores;       // of an attention op
  Scratch threads;      // parts for each thread

  // Room for `floats` floats per thread: thread i's is at the result + i * stride, where stride is `floats`
  // rounded up to a cache line.
  float* ForThreads(size_t floats, size_t* stride) {
    *stride = (floats + 15) / 16 * 16;
    return threads.Take(*stride * size_t(pool.threads()));
  }
};

}  // namespace pd::interp
