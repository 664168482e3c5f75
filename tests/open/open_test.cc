#include "open/open.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "coreml/export/export.h"
#include "open/memory.h"
#include "serving/generate.h"
#include "tests/coreml/double_predictor.h"
#include "tests/coreml/example.h"
#include "tests/coreml/sources.h"
#include "tests/device_checks.h"
#include "tests/temp_folder.h"
#include "tests/tiny_model.h"

namespace pd::test {
namespace {

ModelSource TinySource() {
  TinyModel tiny = RandomModel(MixedSpec());
  ModelSource source;
  source.path = "tiny.gguf", source.family = "mixed";
  source.spec = tiny.spec, source.tensors = tiny.tensors;
  return source;
}

std::string MessageOf(const std::function<void()>& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

std::unique_ptr<Engine> EngineOn(const ModelSpec& spec, Devices opened) {
  EngineDevices devices;
  devices.prefill = std::move(opened.prefill);
  devices.decode = std::move(opened.decode);
  EngineOptions options;
  options.leave_lane = opened.leave_thread;
  return std::make_unique<Engine>(spec, std::move(devices), std::move(options));
}

std::string Names() { return fmt::format("{}", fmt::join(DeviceNames(), ", ")); }

TEST(Open, NamesWhatThereIs) {
  EXPECT_EQ(Names().find("cpu, reference"), 0u);
  for (const std::string& name : DeviceNames()) CheckDeviceName(name);
  EXPECT_EQ(MessageOf([] { CheckDeviceName("gpu"); }, ErrorKind::kBadRequest),
            "there is no device 'gpu': this build has " + Names());
  EXPECT_EQ(MessageOf([] { CheckDeviceName(""); }, ErrorKind::kBadRequest),
            "there is no device '': this build has " + Names());
  if (std::ranges::count(DeviceNames(), "mlx") == 0) {
    EXPECT_EQ(MessageOf([] { CheckDeviceName("mlx"); }, ErrorKind::kUnsupported),
              "device mlx: this pd-engine is built without MLX; it has " + Names());
  }
  EXPECT_EQ(MessageOf([] { CheckDeviceName("coreml"); }, ErrorKind::kBadRequest),
            "device coreml only prefills; those that decode are " + Names());
  EXPECT_EQ(PrefillDeviceNames().back(), "coreml");
  for (const std::string& name : PrefillDeviceNames()) CheckPrefillDeviceName(name);
}

// Exported, prefilled by its Core ML programs and decoded elsewhere: the text of the decode device alone,
// also when the prompt is longer than the programs take.
TEST(Open, CoreMlRunsAnExportedModel) {
  ModelSource source = RandomSource(MixedSpec());
  const TempFolder folder;
  ExportOptions exported;
  exported.chunks = {32};
  exported.histories = {0, 32};
  ExportBundle(source, folder / "bundle", exported, [](const ExportProgress&) {});
  OpenOptions options;
  options.threads = 2;
  options.bundle = folder / "bundle";
  options.predictors = DoublePredictors();
  const std::vector<TokenId> prompt = SomeTokens(100, source.spec.vocab);
  int chunk = 32;
  const auto text = [&](const char* prefill, RequestStats& stats) {
    const auto engine = EngineOn(source.spec, OpenDevices(source, prefill, "reference", options));
    const auto result = Generate(*engine, {.prompt = prompt, .max_tokens = 8, .prefill_chunk = chunk}, {});
    stats = result.stats;
    return result.tokens;
  };
  RequestStats alone, split;
  EXPECT_EQ(text("coreml", split), text("reference", alone));
  EXPECT_EQ(split.prefill_tokens, 64);
  EXPECT_EQ(split.tail_tokens, 35);
  EXPECT_EQ(alone.prefill_tokens, 99);
  chunk = 40;  // no call can start at token 40
  EXPECT_EQ(text("coreml", split), text("reference", alone));
  EXPECT_EQ(split.prefill_tokens, 40);
  EXPECT_EQ(split.tail_tokens, 59);

  options.bundle = folder / "other";
  RequestStats none;
  EXPECT_NE(MessageOf([&] { text("coreml", none); }, ErrorKind::kNotFound).find("export"), std::string::npos);
}

TEST(Open, RefusesUnknownNamesBeforeLoading) {
  ModelSource source = TinySource();
  OpenOptions options;
  options.progress = [](size_t, size_t) { ADD_FAILURE() << "loaded"; };
  MessageOf([&] { OpenDevices(source, "cpu", "coreml", options); }, ErrorKind::kBadRequest);  // only prefills
  MessageOf([&] { OpenDevices(source, "none", "cpu", options); }, ErrorKind::kBadRequest);
  MessageOf([&] { OpenDevice(source, "none", options); }, ErrorKind::kBadRequest);
}

TEST(Open, DevicesHaveTheirNamesAndTheirOwnMemory) {
  ModelSource source = TinySource();
  for (const std::string& name : DeviceNames()) {
    const Devices devices = OpenDevices(source, name, name, {.threads = 2});
    EXPECT_EQ(devices.prefill[0]->Info().name, name);
    EXPECT_EQ(devices.decode->Info().name, name);
    // A slot of one is not known to the other.
    const std::vector<TokenId> ids = {1, 2, 3};
    const auto session = devices.prefill[0]->Begin(3, {}, {});
    const KvSegment segment = session->Run(ids, 0);
    EXPECT_THROW(devices.decode->Length(0), Error);
    const SlotId slot = devices.decode->Open(8, {});
    devices.decode->Import(slot, segment);
    EXPECT_EQ(devices.decode->Length(slot), 3);
  }
}

// Taken once for an opened model, not again by each device: what changes afterwards changes no digest.
TEST(Open, DevicesTakeTheModelsDigest) {
  ModelSource source = TinySource();
  EXPECT_EQ(source.Digest(), WeightsDigest(source.spec, source.tensors));
  const uint64_t first = source.Digest();
  source.tensors.embed = RandomModel(source.spec, 2).tensors.embed;
  ASSERT_NE(WeightsDigest(source.spec, source.tensors), first);
  const std::vector<TokenId> ids = {1, 2, 3};
  for (const std::string& name : DeviceNames()) {
    const auto device = OpenPrefillDevice(source, name, {.threads = 1});
    EXPECT_EQ(device->Begin(3, {}, {})->Run(ids, 0).id.weights, first) << name;
  }
}

// Every pair hands over to each other: the same greedy text from all of them.
TEST(Open, PairsOfDevicesGiveOneText) {
  ModelSource source = TinySource();
  std::vector<TokenId> prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = TokenId((i * 29 + 3) % 96);
  std::vector<std::vector<TokenId>> texts;
  for (const std::string& prefill : DeviceNames()) {
    for (const std::string& decode : DeviceNames()) {
      const auto engine = EngineOn(source.spec, OpenDevices(source, prefill, decode, {.threads = 2}));
      const auto result = Generate(*engine, {.prompt = prompt, .max_tokens = 8, .prefill_chunk = 16}, {});
      texts.push_back(result.tokens);
    }
  }
  for (const auto& text : texts) EXPECT_EQ(text, texts.front());
}

TEST(Open, TellsAboutProgressAndEndsWhenAsked) {
  ModelSource source = TinySource();
  OpenOptions options;
  size_t last = 0, total = 0;
  options.progress = [&](size_t done, size_t all) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, all);
    last = done, total = all;
  };
  OpenDevice(source, "cpu", options);
  EXPECT_GT(total, 0u);
  EXPECT_EQ(last, total);
  options.progress = [](size_t, size_t) { throw Fail(ErrorKind::kCancelled, "enough"); };
  EXPECT_EQ(MessageOf([&] { OpenDevice(source, "cpu", options); }, ErrorKind::kCancelled), "enough");
}

TEST(Memory, IsPredicted) {
  ModelSource source = TinySource();
  int64_t values = 0;
  ForEachWeight(source.spec, source.tensors,
                [&](const TensorView& t, const WeightInfo&) { values += t.rows() * t.columns(); });
  const MemoryNeed reference = EstimateMemory(source, "reference");
  EXPECT_EQ(reference.weights, size_t(values) * 8);
  const MemoryNeed cpu = EstimateMemory(source, "cpu");
  EXPECT_GT(cpu.weights, size_t(values));
  const auto device = OpenDevice(source, "cpu", {});
  EXPECT_EQ(cpu.memory.kv, device->Info().memory.kv);
  EXPECT_EQ(reference.memory.kv, OpenDevice(source, "reference", {})->Info().memory.kv);

  const std::vector<std::string> pair = {"cpu", "cpu"}, mixed = {"cpu", "reference"};
  const size_t both =
      cpu.weights + 2 * (cpu.activations + MemoryBytes(source.spec, cpu.memory, 10));  // weights are shared
  CheckMemory(source, pair, 10, both);
  const std::string message =
      MessageOf([&] { CheckMemory(source, pair, 10, both - 1); }, ErrorKind::kOutOfMemory);
  EXPECT_EQ(message.find("tiny.gguf needs "), 0u) << message;
  EXPECT_NE(message.find("for 10 tokens on cpu and cpu"), std::string::npos) << message;
  const size_t all = cpu.weights + reference.weights + cpu.activations + reference.activations +
                     MemoryBytes(source.spec, cpu.memory, 10) +
                     MemoryBytes(source.spec, reference.memory, 10);
  CheckMemory(source, mixed, 10, all);
  MessageOf([&] { CheckMemory(source, mixed, 10, all - 1); }, ErrorKind::kOutOfMemory);
}

TEST(Memory, IsAvailable) {
  const size_t available = AvailableMemory();
  EXPECT_GT(available, size_t(1) << 20);
  EXPECT_LT(available, size_t(1) << 50);
}

}  // namespace
}  // namespace pd::test
