// The interpreter on a prefill program in the shape of SmolLM2-135M: 128 tokens, without history and with
// 2048 past tokens. Random weights, since speed does not depend on values; threads: as many as processors, or
// PD_BENCH_THREADS. Reports FLOP/s of the program's products beside the time.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "coreml/export/encode.h"
#include "coreml/export/range.h"
#include "coreml/interpreter/interpreter.h"
#include "coreml/mil/lint.h"
#include "coreml/mil/mil_ops.h"

namespace pd {
namespace {

std::shared_ptr<ThreadPool> Pool() {
  const char* given = std::getenv("PD_BENCH_THREADS");
  return std::make_shared<ThreadPool>(given ? std::atoi(given) : int(std::thread::hardware_concurrency()));
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

// Small random halves that fill as many bytes as one asks for.
std::vector<std::byte> RandomHalves(size_t bytes) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.04f);
  std::vector<F16> pattern(1 << 20);
  for (F16& h : pattern) h = ToF16(normal(generator));
  std::vector<std::byte> all(bytes);
  for (size_t at = 0; at < bytes; at += pattern.size() * sizeof(F16))
    std::memcpy(all.data() + at, pattern.data(), std::min(pattern.size() * sizeof(F16), bytes - at));
  return all;
}

struct Smol {
  ModelSpec spec = SmolSpec();
  std::vector<std::byte> weights;
  Package package;

  explicit Smol(WeightFormat format) {
    Weights<mil::EncodedWeight> encoded;
    BlobLayout layout;
    MakeRoom(spec, encoded);
    ForEachWeight(spec, encoded, [&](mil::EncodedWeight& w, const WeightInfo& info) {
      w = IsNeeded(spec, info) ? PlanWeight(spec, info, format, layout) : mil::EncodedWeight{info, {}};
    });
    weights = RandomHalves(layout.size());
    const auto pointers = MapWeights<const mil::EncodedWeight*>(
        spec, encoded, [](const mil::EncodedWeight& w, const WeightInfo&) { return &w; });
    for (int history : {0, 2048})
      package.program.functions["s" + std::to_string(history)] =
          LowerPrefill(spec, pointers, UnitScales(spec), {}, {128, history}, {0}).at(0);
    for (auto& [name, function] : package.program.functions)
      for (mil::Operation& op : function.body.operations) {
        for (auto& [key, value] : op.attributes) Attach(value);
        for (auto& [key, bindings] : op.inputs)
          for (mil::Binding& binding : bindings)
            if (auto* value = std::get_if<mil::Value>(&binding)) Attach(*value);
      }
  }

 private:
  void Attach(mil::Value& value) const {
    if (auto* blob = std::get_if<mil::Blob>(&value.data))
      blob->bytes = std::span(weights).subspan(blob->offset + 64, mil::ByteSize(value.type));
  }
};

void BM_Open(benchmark::State& state) {
  const auto format = WeightFormat(state.range(0));
  const Smol smol(format);
  const auto pool = Pool();
  for (auto _ : state) Interpreter(smol.package, pool);
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(smol.weights.size()));
  state.SetLabel(Name(format));
}
BENCHMARK(BM_Open)->DenseRange(0, 2)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_Prefill128(benchmark::State& state) {
  static const Smol smol(WeightFormat::kFp16);
  static Interpreter interpreter(smol.package, Pool());
  const std::string function = "s" + std::to_string(state.range(0));
  InputTensors inputs;
  const std::vector<std::byte> data = RandomHalves(size_t(1) << 21);
  for (const mil::NamedType& input : interpreter.Inputs(function))
    inputs[input.name] = {input.type, {}, data.data()};
  for (auto _ : state) benchmark::DoNotOptimize(interpreter.Run(function, inputs));
  const double flops = mil::Lint(function, smol.package.program.functions.at(function)).flops;
  state.counters["FLOP/s"] =
      benchmark::Counter(flops * double(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["working_MB"] = double(interpreter.working_bytes()) / 1e6;
}
BENCHMARK(BM_Prefill128)->Arg(0)->Arg(2048)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace pd
