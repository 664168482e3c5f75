// Reading a tokenizer, encoding and streaming text. The default model's vocabulary when $PD_TEST_MODEL names
// it, else a small one.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "base/files.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace {

constexpr const char* kText = "tests/data/text";

std::string Model() {
  const char* model = std::getenv("PD_TEST_MODEL");
  return model && std::filesystem::exists(model) ? model : std::string(kText) + "/smollm/tokenizer.gguf";
}

const std::shared_ptr<const pd::Tokenizer>& Tokenizer() {
  static const auto tokenizer = pd::Tokenizer::FromGguf(*pd::GgufFile::Open(Model()));
  return tokenizer;
}

std::string Lines() {
  const std::string path = std::string(kText) + "/lines.json";
  std::string text;
  for (const auto& line : pd::ParseSortedJson(pd::ReadTextFile(path), path))
    text += line.get<std::string>() + "\n";
  return text;
}

void BM_OpenGguf(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(pd::GgufFile::Open(Model()));
}
BENCHMARK(BM_OpenGguf)->Unit(benchmark::kMillisecond);

void BM_Load(benchmark::State& state) {
  const auto file = pd::GgufFile::Open(Model());
  for (auto _ : state) benchmark::DoNotOptimize(pd::Tokenizer::FromGguf(*file));
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

void Encode(benchmark::State& state, const std::string& text) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer()->Encode(text));
  state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(text.size()));
}
void BM_EncodeScripts(benchmark::State& state) { Encode(state, Lines()); }
void BM_EncodeEnglish(benchmark::State& state) {
  Encode(state, pd::ReadTextFile("docs/decisions/coreml.md"));
}
BENCHMARK(BM_EncodeScripts)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_EncodeEnglish)->Unit(benchmark::kMillisecond);

void BM_Stream(benchmark::State& state) {
  const std::vector<pd::TokenId> ids = Tokenizer()->Encode(Lines());
  for (auto _ : state) {
    pd::TextStream stream(Tokenizer(), {.stops = {"no such text", "nor this"}});
    for (const pd::TokenId id : ids) benchmark::DoNotOptimize(stream.Push(id));
    benchmark::DoNotOptimize(stream.Flush());
  }
  state.SetItemsProcessed(int64_t(state.iterations()) * int64_t(ids.size()));
}
BENCHMARK(BM_Stream)->Unit(benchmark::kMillisecond);

}  // namespace
