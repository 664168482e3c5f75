// Digesting weights at load: bytes per second, from cache (64 KiB) and from memory (64 MiB).
#include <benchmark/benchmark.h>

#include <vector>

#include "base/digest.h"

namespace {

void BM_Digest(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<size_t>(state.range(0)), std::byte{1});
  for (auto _ : state) benchmark::DoNotOptimize(pd::Digest(bytes));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(BM_Digest)->Arg(64 << 10)->Arg(64 << 20);

}  // namespace
