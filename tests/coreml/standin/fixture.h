// The runtime over stand-ins of Core ML's classes: everything it does with a model, and everything that can
// go wrong with one.
#include <gtest/gtest.h>
#include <algorithm>

#include "base/error.h"
#include "coreml/device/coreml_prefill.h"
#include "coreml/device/interpreted.h"
#include "coreml/export/export.h"
#include "coreml/runtime/runtime.h"
#include "reference/reference_ops.h"
#include "serving/generate.h"
#include "serving/request.h"
#include "tests/coreml/example.h"
#include "tests/coreml/sources.h"
#include "tests/coreml/standin/backend.h"
#include "tests/device_checks.h"
#include "tests/temp_folder.h"

namespace pd::test {

namespace fs = std::filesystem;
using standin::Call;
using standin::Director;
using standin::Fault;
using standin::Kind;

inline constexpr int kChunk = 32, kPrompt = 75, kText = 6;
inline constexpr int kIo = 3;  // MLModelErrorIO

// A small model, exported once, and what it says when our interpreter runs the same packages.
struct World {
  TempFolder folder;
  ModelSource model = [] {
    ModelSpec spec = MixedSpec();
    spec.layers.resize(3);
    return RandomSource(spec);
  }();
  Bundle bundle;
  std::vector<TokenId> prompt, text;
  std::shared_ptr<const ReferenceModel> weights;
  std::vector<KvSegment> segments;  // of the prompt's chunks

  World() {
    ExportOptions options;
    options.chunks = {kChunk};
    options.histories = {0, 2 * kChunk};
    options.max_shard_bytes = 25'000;
    ExportBundle(model, folder / "bundle", options, [](const ExportProgress&) {});
    bundle = ReadBundle(folder / "bundle");
    EXPECT_EQ(bundle.shards.size(), 2u);
    weights = LoadReferenceModel(model.spec, model.tensors);
    prompt = SomeTokens(kPrompt + 1, model.spec.vocab);
    const auto reference =
        OpenCoreMlPrefill(model, bundle, InterpretedPredictors(std::make_shared<ThreadPool>(1)), {});
    text = Say(*reference).tokens;
    EXPECT_EQ(text.size(), size_t(kText));
    segments = Prefill(*reference);
    // The decode device alone says the same: a failure that is passed over cannot hide, one that is taken
    // care of does not show.
    const auto none = OpenCoreMlPrefill(model, bundle, Refusing(), {});
    const RequestResult alone = Say(*none);
    EXPECT_EQ(alone.stats.prefill_tokens, 0);
    EXPECT_EQ(alone.tokens, text);
  }

  RequestResult Say(PrefillDevice& prefill) const {
    EngineDevices devices;
    devices.prefill.push_back(std::make_unique<Borrowed>(prefill));
    devices.decode = OpenReferenceDevice(weights);
    Engine engine(model.spec, std::move(devices));
    Request request;
    request.prompt = prompt;
    request.max_tokens = kText;
    request.prefill_chunk = kChunk;
    return Generate(engine, std::move(request), {});
  }
  std::vector<KvSegment> Prefill(PrefillDevice& device) const {
    std::vector<KvSegment> all;
    const auto session = device.Begin(kPrompt, {}, {});
    for (int at = 0; at < kPrompt; at += kChunk)
      all.push_back(
          session->Run(std::span(prompt).subspan(size_t(at), size_t(std::min(kChunk, kPrompt - at))), at));
    return all;
  }

 private:
  // An engine owns its devices; this one goes on after it.
  class Borrowed final : public PrefillDevice {
   public:
    explicit Borrowed(PrefillDevice& device) : device_(device) {}
    const DeviceInfo& Info() const override { return device_.Info(); }
    std::optional<std::string> Refuses(const Variant& variant) const override {
      return device_.Refuses(variant);
    }
    int Reach(int first) const override { return device_.Reach(first); }
    std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                          std::span<const KvSegment> prefix) override {
      return device_.Begin(capacity, variant, prefix);
    }

   private:
    PrefillDevice& device_;
  };

  class Refuser final : public Predictor {
   public:
    std::vector<std::string> Inputs(const std::string&) override { return {}; }
    HalfTensors Predict(const std::string&, const HalfTensors&, PredictorState*) override { return {}; }
    std::unique_ptr<PredictorState> NewState(const std::string&) override { return nullptr; }
    std::optional<std::string> GivenUp(const std::string&) override { return "never tried"; }
  };
  static PredictorFactory Refusing() {
    return [](const fs::path&) { return std::make_unique<Refuser>(); };
  }
};

inline std::vector<float> Numbers(const ModelSpec& spec, const KvSegment& segment) {
  std::vector<float> all;
  for (size_t l = 0; l < segment.layers.size(); ++l) {
    const KvLayerView& layer = segment.kv(l);
    std::vector<float> head(size_t(AttentionOf(spec.layers[l]).head_dim));
    for (const std::byte* base : {layer.k, layer.v})
      for (int t = 0; t < segment.count; ++t)
        for (int h = 0; h < AttentionOf(spec.layers[l]).kv_heads; ++h) {
          ReadHead(layer, base, h, t, head);
          all.insert(all.end(), head.begin(), head.end());
        }
  }
  return all;
}

class StandIn : public testing::Test {
 protected:
  static void SetUpTestSuite() { world_ = std::make_unique<World>(); }
  static void TearDownTestSuite() { world_.reset(); }
  void SetUp() override { Director::The().Reset(); }
  void TearDown() override { CheckNothingIsLeft(); }
  void CheckNothingIsLeft() {
    device_.reset();
    runtime_.reset();
    Director::The().Settle();
    EXPECT_EQ(Director::The().live, 0) << "objects of Core ML that nobody let go of";
    EXPECT_EQ(Director::The().touched, 0) << "memory was locked while Core ML wrote it";
    Director::The().Reset();
  }

  static World& world() { return *world_; }
  static Director& director() { return Director::The(); }

  RuntimeOptions Options() {
    RuntimeOptions options;
    options.cache_folder = folder_ / "cache";
    options.os_build = "24A335", options.machine = "Mac16,1";
    options.engagement.runs = 1;
    options.milliseconds = [] { return Director::The().Milliseconds(); };
    options.note = [this](const std::string& sentence) { notes_.push_back(sentence); };
    return options;
  }
  void Open(RuntimeOptions options) {
    device_.reset();
    runtime_ = std::make_unique<CoreMlRuntime>(MakeCoreMl(), world().bundle, std::move(options));
    device_ = OpenCoreMlPrefill(world().model, world().bundle, runtime_->Factory(), {});
  }
  // The text must be the right one, whoever computes.
  RequestStats Say() {
    const RequestResult result = world().Say(*device_);
    EXPECT_EQ(result.tokens, world().text);
    return result.stats;
  }
  void ExpectSameBits() {
    const std::vector<KvSegment> segments = world().Prefill(*device_);
    ASSERT_EQ(segments.size(), world().segments.size());
    for (size_t i = 0; i < segments.size(); ++i)
      EXPECT_EQ(Numbers(world().model.spec, segments[i]), Numbers(world().model.spec, world().segments[i]))
          << i;
  }
  int DisabledFunctions() const {
    int disabled = 0;
    for (const FunctionReport& f : runtime_->Report().functions) disabled += !f.disabled.empty();
    return disabled;
  }
  bool Told(std::string_view part) const {
    return std::ranges::any_of(notes_,
                               [&](const std::string& note) { return note.find(part) != std::string::npos; });
  }

  static inline std::unique_ptr<World> world_;
  const TempFolder folder_;
  std::vector<std::string> notes_;
  std::unique_ptr<CoreMlRuntime> runtime_;
  std::unique_ptr<PrefillDevice> device_;
};

}  // namespace pd::test
