#include "cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "cpu/kernels/kernels.h"
#include "cpu/pages.h"

namespace pd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDepth = 512, kRows = 96;  // a tile and its rows fit any second-level cache
constexpr int kPasses = 4;
constexpr auto kPassTime = std::chrono::milliseconds(6);

// A tile of zeros times rows of zeros: speed does not depend on values, and zeros are never slow.
double OperationsPerSecond(const cpu::Kernels& kernels, DType type, ThreadPool& pool) {
  const int64_t stride = IsQuantised(type) ? cpu::Int8RowBytes(kDepth) : int64_t(sizeof(float)) * kDepth;
  const size_t tile = cpu::TileBytes(type, kDepth), rows = size_t(stride) * kRows;
  const auto each = (tile + rows + sizeof(float) * kRows * cpu::kTile + 4095) / 4096 * 4096;
  const cpu::Pages memory(each * size_t(pool.threads()), cpu::Pages::Size::kSmall, "measuring the processor");
  std::vector<double> calls(size_t(pool.threads()));
  const auto start = Clock::now(), until = start + kPassTime;
  pool.Run([&](int thread) {
    std::byte* own = memory.data() + each * size_t(thread);
    const cpu::TileJob job{own,        kDepth, own + tile,
                           stride,     kRows,  reinterpret_cast<float*>(own + tile + rows),
                           cpu::kTile, nullptr};
    do {
      kernels.Product(type)(job);
      ++calls[size_t(thread)];
    } while (Clock::now() < until);
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  double sum = 0;
  for (const double c : calls) sum += c;
  return sum * 2 * kRows * cpu::kTile * kDepth / seconds;
}

}  // namespace

double MeasureCpuPeak(ThreadPool& pool) {
  const cpu::Kernels* kernels = cpu::FindKernels(cpu::BestLevel());
  PD_CHECK(kernels);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass)
    for (const DType type :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1})
      best = std::max(best, OperationsPerSecond(*kernels, type, pool));
  return best;
}

}  // namespace pd
