// The CPU backend beside the limits of the machine it runs on: plain reads, dot products, products of weights
// and rows, whole steps of a model. Random weights in the shape of SmolLM2-135M (q4_1, tied q8_0 head), since
// speed does not depend on values; threads: as many as processors, or PD_BENCH_THREADS.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include "cpu/cpu_device.h"
#include "cpu/kernels/kernels.h"
#include "tests/cpu/random_weights.h"

namespace pd {
namespace {

int Threads() {
  const char* given = std::getenv("PD_BENCH_THREADS");
  return given ? std::atoi(given) : int(std::thread::hardware_concurrency());
}

ModelSpec SmolSpec() {
  AttentionSpec attention;
  attention.heads = 9, attention.kv_heads = 3, attention.head_dim = 64;
  attention.scale = 0.125f;
  attention.rope = RopeSpec{100000, 64};
  ModelSpec spec;
  spec.width = 576, spec.vocab = 49152, spec.max_context = 8192, spec.tied_head = true;
  spec.layers.assign(30, PreNormLayer({}, attention, {.hidden = 1536}));
  return spec;
}

struct Smol {
  ModelSpec spec = SmolSpec();
  Weights<TensorView> tensors;
  std::shared_ptr<ThreadPool> pool = std::make_shared<ThreadPool>(Threads());
  std::shared_ptr<const CpuModel> model;

  Smol() {
    unsigned seed = 0;
    MakeRoom(spec, tensors);
    ForEachWeight(spec, tensors, [&](TensorView& t, const WeightInfo& info) {
      const bool vector = info.shape.size() == 1;
      const DType type = vector ? DType::kF32 : info.role == Role::kTable ? DType::kQ8_0 : DType::kQ4_1;
      t = test::RandomTensor(type, vector ? 1 : info.shape[0], info.shape.back(), ++seed);
      t.shape = info.shape;
    });
    model = LoadCpuModel(spec, tensors, *pool);
  }
};
Smol& TheModel() {
  static Smol model;
  return model;
}

void BM_Load(benchmark::State& state) {
  Smol& smol = TheModel();
  for (auto _ : state) benchmark::DoNotOptimize(LoadCpuModel(smol.spec, smol.tensors, *smol.pool));
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(smol.model->packed_bytes()));
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond)->UseRealTime();

// ---- limits ----

void BM_Read(benchmark::State& state) {
  Smol& smol = TheModel();
  const size_t bytes = smol.model->packed_bytes();
  const std::vector<uint64_t> memory(bytes / 8, 1);
  for (auto _ : state)
    smol.pool->Split(int64_t(memory.size()), 1, [&](int64_t begin, int64_t end) {
      uint64_t sum[8] = {};
      for (int64_t i = begin; i + 8 <= end; i += 8)
        for (int64_t j = 0; j < 8; ++j) sum[j] += memory[size_t(i + j)];
      benchmark::DoNotOptimize(sum);
    });
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(bytes));
}
BENCHMARK(BM_Read)->Unit(benchmark::kMillisecond)->UseRealTime();

// One thread's arithmetic without memory: a tile of 32 outputs that stays in the first cache, by rows. GOP/s
// counts a multiplication and an addition.
void BM_Tile(benchmark::State& state, cpu::Level level, DType type) {
  const cpu::Kernels* kernels = cpu::FindKernels(level);
  if (!kernels) return state.SkipWithError("not on this processor");
  const int k = 576, rows = int(state.range(0));
  std::vector<std::byte> memory(cpu::TileBytes(type, k) + 64);
  std::byte* tile = memory.data() + (64 - uintptr_t(memory.data()) % 64) % 64;
  cpu::PackTile(test::RandomTensor(type, 32, k, 1), 0, tile);
  const std::vector<float> x(size_t(rows * k), 0.5f);
  const int64_t stride = IsQuantised(type) ? cpu::Int8RowBytes(k) : 4 * k;
  std::vector<std::byte> acts(size_t(rows * stride));
  for (int r = 0; r < rows; ++r) {
    if (IsQuantised(type))
      kernels->quantise_row(&x[size_t(r * k)], k, cpu::kSpread, &acts[size_t(r * stride)]);
    else
      std::memcpy(&acts[size_t(r * stride)], &x[size_t(r * k)], size_t(stride));
  }
  std::vector<float> out(size_t(rows * 32));
  for (auto _ : state) {
    kernels->Product(type)({tile, k, acts.data(), stride, rows, out.data(), 32, nullptr});
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["GOP/s"] =
      benchmark::Counter(2e-9 * 32 * k * rows, benchmark::Counter::kIsIterationInvariantRate);
}
void Tiles(benchmark::internal::Benchmark* b) { b->Arg(1)->Arg(4)->Arg(6)->Arg(96); }
BENCHMARK_CAPTURE(BM_Tile, avx512_q4_1, cpu::Level::kAvx512, DType::kQ4_1)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Tile, avx512_q8_0, cpu::Level::kAvx512, DType::kQ8_0)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Tile, avx512_f32, cpu::Level::kAvx512, DType::kF32)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Tile, avx512_bf16, cpu::Level::kAvx512, DType::kBF16)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Tile, avx2_q4_1, cpu::Level::kAvx2, DType::kQ4_1)->Apply(Tiles);
BENCHMARK_CAPTURE(BM_Tile, avx2_f32, cpu::Level::kAvx2, DType::kF32)->Apply(Tiles);

// ---- steps of the model ----

struct Stream {
  explicit Stream(DecodeDevice& d, int capacity) : device(d), slot(d.Open(capacity, {})) {}
  ~Stream() { device.Close(slot); }
  DecodeDevice& device;
  SlotId slot;
};

// `count` tokens of one slot, from `first`.
void Prefill(DecodeDevice& device, SlotId slot, int first, int count) {
  for (int at = first; at < first + count; at += device.Info().max_rows) {
    const int n = std::min(device.Info().max_rows, first + count - at);
    std::vector<TokenId> ids(size_t(n), 0);
    std::vector<int32_t> pos(size_t(n), 0);
    std::iota(pos.begin(), pos.end(), at);
    std::iota(ids.begin(), ids.end(), at);
    const std::vector<SlotId> slots(size_t(n), slot);
    device.Collect(device.Submit({{ids, pos, slots, {}}, {}}));
  }
}

void BM_Prefill(benchmark::State& state) {
  Smol& smol = TheModel();
  const auto device = OpenCpuDevice(smol.model, smol.pool);
  const int tokens = int(state.range(0));
  for (auto _ : state) {
    const Stream stream(*device, tokens);
    Prefill(*device, stream.slot, 0, tokens);
  }
  state.counters["tok/s"] = benchmark::Counter(tokens, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Prefill)->Arg(16)->Arg(128)->Arg(512)->Arg(2048)->Unit(benchmark::kMillisecond)->UseRealTime();

// One token of each of `range(0)` streams, after `range(1)` tokens each; greedy.
void BM_Decode(benchmark::State& state) {
  Smol& smol = TheModel();
  const auto device = OpenCpuDevice(smol.model, smol.pool);
  const int streams = int(state.range(0)), context = int(state.range(1));
  std::vector<std::unique_ptr<Stream>> open;
  std::vector<SlotId> slots;
  for (int i = 0; i < streams; ++i) {
    open.push_back(std::make_unique<Stream>(*device, context + 1));
    slots.push_back(open.back()->slot);
    Prefill(*device, slots.back(), 0, context);
  }
  std::vector<int32_t> wanted(static_cast<size_t>(streams));
  std::iota(wanted.begin(), wanted.end(), 0);
  const std::vector<TokenId> ids(size_t(streams), 7);
  const std::vector<SampleSpec> sample(static_cast<size_t>(streams));
  const std::vector<int32_t> pos(size_t(streams), context);
  for (auto _ : state) {
    benchmark::DoNotOptimize(device->Collect(device->Submit({{ids, pos, slots, wanted}, sample})));
    for (SlotId slot : slots) device->Truncate(slot, context);
  }
  state.counters["tok/s"] = benchmark::Counter(streams, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = benchmark::Counter(1e-9 * double(smol.model->packed_bytes()),
                                              benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Decode)
    ->Args({1, 32})
    ->Args({1, 512})
    ->Args({1, 2048})
    ->Args({4, 32})
    ->Args({8, 32})
    ->Args({16, 32})
    ->Args({16, 512})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace pd
