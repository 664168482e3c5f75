// From a model to a bundle to a prefill device, against the reference device.
#include <gtest/gtest.h>

#include "base/error.h"
#include "coreml/device/coreml_prefill.h"
#include "coreml/export/export.h"
#include "device/prefill_via.h"
#include "model/rope.h"
#include "reference/reference_ops.h"
#include "tests/coreml/double_predictor.h"
#include "tests/coreml/example.h"
#include "tests/coreml/sources.h"
#include "tests/device_checks.h"
#include "tests/error_table.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

ExportOptions SmallOptions() {
  ExportOptions options;
  options.chunks = {32, 64};
  options.histories = {0, 64, 160};
  return options;
}

ExportReport Export(ModelSource& model, const std::filesystem::path& out, const ExportOptions& options) {
  return ExportBundle(model, out, options, [](const ExportProgress&) {});
}

std::unique_ptr<PrefillDevice> OpenBundle(ModelSource& model, const std::filesystem::path& path) {
  return OpenCoreMlPrefill(model, ReadBundle(path), test::DoublePredictors(), {});
}

std::unique_ptr<PrefillDevice> OpenReference(ModelSource& model) {
  return std::make_unique<PrefillVia>(OpenReferenceDevice(LoadReferenceModel(model.spec, model.tensors)));
}

// Keys (rotated, as the importer would) and values of one layer of a segment: tokens, heads, dims.
struct LayerKv {
  std::vector<float> keys, values;
};
std::vector<LayerKv> Collect(const ModelSpec& spec, const KvSegment& segment) {
  std::vector<LayerKv> result(spec.layers.size());
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const AttentionSpec& a = AttentionOf(spec.layers[l]);
    std::vector<float> head(size_t(a.head_dim));
    for (int t = segment.first; t < segment.first + segment.count; ++t)
      for (int h = 0; h < a.kv_heads; ++h) {
        ReadHead(segment.kv(l), segment.kv(l).k, h, t - segment.first, head);
        if (segment.key_form == KeyForm::kRaw && a.rope) {
          const RopeFrequencies f = Frequencies(*a.rope, segment.id.variant.rope);
          for (size_t i = 0; i < f.inverse.size(); ++i) {
            const double angle = t * f.inverse[i];
            const double x = double(head[i]), y = double(head[i + f.inverse.size()]);
            head[i] = float((x * std::cos(angle) - y * std::sin(angle)) * f.scale);
            head[i + f.inverse.size()] = float((y * std::cos(angle) + x * std::sin(angle)) * f.scale);
          }
        }
        result[l].keys.insert(result[l].keys.end(), head.begin(), head.end());
        ReadHead(segment.kv(l), segment.kv(l).v, h, t - segment.first, head);
        result[l].values.insert(result[l].values.end(), head.begin(), head.end());
      }
  }
  return result;
}

// Runs the prompt in pieces of `chunk` on a fresh session.
std::vector<LayerKv> Prefill(PrefillDevice& device, const ModelSpec& spec, std::span<const TokenId> prompt,
                             int chunk, std::vector<KvSegment>* segments = nullptr) {
  const Variant variant{FixRope(spec, int(prompt.size()))};
  const auto session = device.Begin(int(prompt.size()), variant, {});
  std::vector<LayerKv> all(spec.layers.size());
  for (int at = 0; at < int(prompt.size()); at += chunk) {
    const int n = std::min(chunk, int(prompt.size()) - at);
    const KvSegment segment = session->Run(prompt.subspan(size_t(at), size_t(n)), at);
    EXPECT_EQ(segment.first, at);
    EXPECT_EQ(segment.count, n);
    if (segments) segments->push_back(segment);
    const std::vector<LayerKv> some = Collect(spec, segment);
    for (size_t l = 0; l < all.size(); ++l) {
      all[l].keys.insert(all[l].keys.end(), some[l].keys.begin(), some[l].keys.end());
      all[l].values.insert(all[l].values.end(), some[l].values.begin(), some[l].values.end());
    }
  }
  return all;
}

void ExpectClose(const std::vector<LayerKv>& got, const std::vector<LayerKv>& want, const char* row) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t l = 0; l < got.size(); ++l) {
    ASSERT_EQ(got[l].keys.size(), want[l].keys.size());
    EXPECT_LT(test::RelativeError(got[l].keys, want[l].keys), test::LogitError(row)) << "keys of layer " << l;
    EXPECT_LT(test::RelativeError(got[l].values, want[l].values), test::LogitError(row))
        << "values of layer " << l;
  }
}

struct Form {
  const char* name;
  mil::AttentionForm attention;
  KeyForm keys;
  int64_t max_shard_bytes;
  ModelSpec (*spec)() = [] { return test::MixedSpec(); };
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class Prefilled : public testing::TestWithParam<Form> {};

TEST_P(Prefilled, KeysAndValuesAreThoseOfTheReference) {
  ModelSource model = test::RandomSource(GetParam().spec());
  const test::TempFolder folder;
  ExportOptions options = SmallOptions();
  options.lowering = {GetParam().attention, GetParam().keys};
  options.max_shard_bytes = GetParam().max_shard_bytes;
  const ExportReport report = Export(model, folder / "bundle", options);
  EXPECT_EQ(report.bundle.shards.size() > 1, GetParam().max_shard_bytes < 1'000'000);
  const auto device = OpenBundle(model, folder / "bundle");
  const auto reference = OpenReference(model);
  const std::vector<TokenId> prompt = test::SomeTokens(150, model.spec.vocab);
  const std::vector<LayerKv> want = Prefill(*reference, model.spec, prompt, 150);
  for (int chunk : {150, 32, 41})
    ExpectClose(Prefill(*device, model.spec, prompt, chunk), want, "coreml_fp16");
}

INSTANTIATE_TEST_SUITE_P(
    Forms, Prefilled,
    testing::Values(Form{"heads", mil::AttentionForm::kHeads, KeyForm::kRotated, 1 << 30},
                    Form{"heads_raw_sharded", mil::AttentionForm::kHeads, KeyForm::kRaw, 30'000},
                    Form{"channels", mil::AttentionForm::kChannels, KeyForm::kRotated, 1 << 30},
                    Form{"grouped_sharded", mil::AttentionForm::kGrouped, KeyForm::kRotated, 60'000},
                    Form{"grouped_raw", mil::AttentionForm::kGrouped, KeyForm::kRaw, 1 << 30},
                    Form{"other_kinds_heads", mil::AttentionForm::kHeads, KeyForm::kRotated, 1 << 30,
                         test::OtherKindsSpec},
                    Form{"other_kinds_channels_sharded", mil::AttentionForm::kChannels, KeyForm::kRotated,
                         30'000, test::OtherKindsSpec},
                    Form{"other_kinds_grouped", mil::AttentionForm::kGrouped, KeyForm::kRotated, 1 << 30,
                         test::OtherKindsSpec}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Tokens [first, first + count) of what a whole prompt gave.
std::vector<LayerKv> Cut(const ModelSpec& spec, const std::vector<LayerKv>& all, int first, int count) {
  std::vector<LayerKv> some(all.size());
  for (size_t l = 0; l < all.size(); ++l) {
    const auto width = std::ptrdiff_t(AttentionOf(spec.layers[l]).kv_width());
    const auto cut = [&](const std::vector<float>& from) {
      return std::vector<float>(from.begin() + first * width, from.begin() + (first + count) * width);
    };
    some[l] = {cut(all[l].keys), cut(all[l].values)};
  }
  return some;
}

// A model of four layers, with a window among them, and what the reference makes of a prompt.
class FourLayers : public testing::Test {
 protected:
  void Open(const std::vector<int>& chunks, const std::vector<int>& histories, int tokens) {
    ExportOptions options;
    options.chunks = chunks;
    options.histories = histories;
    Export(model_, folder_ / "bundle", options);
    device_ = OpenBundle(model_, folder_ / "bundle");
    reference_ = OpenReference(model_);
    prompt_ = test::SomeTokens(tokens, model_.spec.vocab);
    want_ = Prefill(*reference_, model_.spec, prompt_, tokens);
  }

  const test::TempFolder folder_;
  ModelSource model_ = [] {
    ModelSpec spec = test::MixedSpec();
    spec.layers.resize(4);
    return test::RandomSource(spec);
  }();
  std::unique_ptr<PrefillDevice> device_, reference_;
  std::vector<TokenId> prompt_;
  std::vector<LayerKv> want_;
};

// A prompt is resumed at every length of its prefix, whoever computed that.
TEST_F(FourLayers, ResumeAtEveryPrefix) {
  constexpr int kPrompt = 300, kHistory = 288;
  Open({32}, {0, 96, kHistory}, kPrompt);
  const Variant variant{FixRope(model_.spec, kPrompt)};
  const KvSegment whole = reference_->Begin(kPrompt, variant, {})->Run(prompt_, 0);
  for (int at = 1; at <= kHistory; ++at) {
    const KvSegment prefix = Slice(whole, 0, at);
    const int count = std::min(32, kPrompt - at);
    const auto session = device_->Begin(kPrompt, variant, {&prefix, 1});
    const KvSegment rest = session->Run(std::span(prompt_).subspan(size_t(at), size_t(count)), at);
    SCOPED_TRACE(at);
    ExpectClose(Collect(model_.spec, rest), Cut(model_.spec, want_, at, count), "coreml_fp16");
  }
}

TEST_F(FourLayers, EveryLengthAgrees) {
  constexpr int kMost = 2 * 64 + 3;
  Open({32, 64}, {0, 64, 128}, kMost);
  for (int length = 1; length <= kMost; ++length) {
    SCOPED_TRACE(length);
    ExpectClose(Prefill(*device_, model_.spec, std::span(prompt_).first(size_t(length)), length),
                Cut(model_.spec, want_, 0, length), "coreml_fp16");
  }
}

TEST_F(FourLayers, LengthsAroundTheDefaultChunksAgree) {
  constexpr int kMost = 2 * 512 + 3;
  Open({128, 512}, {0, 1024}, kMost);
  for (int length : {127, 128, 129, 511, 512, 513, 640, 1023, 1024, 1025, kMost}) {
    SCOPED_TRACE(length);
    ExpectClose(Prefill(*device_, model_.spec, std::span(prompt_).first(size_t(length)), 512),
                Cut(model_.spec, want_, 0, length), "coreml_fp16");
  }
}

// A stream beyond what halves hold well is scaled down, and nothing that leaves the program shows it.
TEST(PrefillDevice, ScaledStreamsGiveTheSameKeysAndValues) {
  for (ModelSpec spec : {test::MixedSpec(), test::OtherKindsSpec()}) {
    spec.embed_scale = 15000;
    ModelSource model = test::RandomSource(spec);
    const test::TempFolder folder;
    ExportOptions options = SmallOptions();
    options.sample = test::SomeTokens(40, spec.vocab);
    EXPECT_LT(Export(model, folder / "bundle", options).bundle.stream_scale, 1);
    const std::vector<TokenId> prompt = test::SomeTokens(100, spec.vocab);
    ExpectClose(Prefill(*OpenBundle(model, folder / "bundle"), spec, prompt, 64),
                Prefill(*OpenReference(model), spec, prompt, 100), "coreml_fp16");
  }
}

TEST(PrefillDevice, SaysWhatItCannotTake) {
  ModelSource model = test::RandomSource(test::MixedSpec());
  const test::TempFolder folder;
  Export(model, folder / "bundle", SmallOptions());
  const auto device = OpenBundle(model, folder / "bundle");
  EXPECT_EQ(device->Reach(0), 160 + 64);
  EXPECT_EQ(device->Reach(160), 160 + 64);
  EXPECT_EQ(device->Reach(161), 161);
  const auto session = device->Begin(500, {}, {});
  const std::vector<TokenId> prompt = test::SomeTokens(300, model.spec.vocab);
  EXPECT_THROW(session->Run(prompt, 0), Error);                       // beyond every bucket
  EXPECT_THROW(session->Run(std::span(prompt).first(10), 5), Error);  // a gap
  const std::vector<TokenId> foreign = {model.spec.vocab};
  EXPECT_THROW(session->Run(foreign, 0), Error);
  EXPECT_EQ(session->Run(std::span(prompt).first(10), 0).count, 10);  // and it goes on
  EXPECT_EQ(session->Run(std::span(prompt).subspan(10, 200), 10).count, 200);
}

// Segments stay as they are while the device goes on.
TEST(PrefillDevice, SegmentsDoNotChange) {
  ModelSource model = test::RandomSource(test::MixedSpec());
  const test::TempFolder folder;
  Export(model, folder / "bundle", SmallOptions());
  const auto device = OpenBundle(model, folder / "bundle");
  const std::vector<TokenId> prompt = test::SomeTokens(120, model.spec.vocab),
                             other = test::SomeTokens(120, 50, 3);
  std::vector<KvSegment> segments;
  const std::vector<LayerKv> before = Prefill(*device, model.spec, prompt, 40, &segments);
  Prefill(*device, model.spec, other, 40);
  std::vector<LayerKv> after(before.size());
  for (const KvSegment& segment : segments) {
    const auto some = Collect(model.spec, segment);
    for (size_t l = 0; l < after.size(); ++l)
      after[l].keys.insert(after[l].keys.end(), some[l].keys.begin(), some[l].keys.end());
  }
  for (size_t l = 0; l < after.size(); ++l) EXPECT_EQ(before[l].keys, after[l].keys);
}

}  // namespace
}  // namespace pd
