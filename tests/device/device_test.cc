// One set of properties for every decode device of this build. Where a device promises bits, equality is
// equality.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "device/prefill_via.h"
#include "reference/reference_ops.h"
#include "tests/device/test_devices.h"
#include "tests/device_checks.h"
#include "tests/error_table.h"
#include "tests/tiny_model.h"

namespace pd::test {
namespace {

// A device, and a model that it computes.
struct Pairing {
  TestDevice device;
  std::string name;
  ModelSpec spec;
};
void PrintTo(const Pairing& pairing, std::ostream* out) { *out << pairing.name; }

std::vector<Pairing> AllPairings() {
  std::vector<Pairing> pairings;
  for (const TestDevice& device : AllDevices()) {
    pairings.push_back({device, device.name, MixedSpec()});
    pairings.push_back({device, device.name + "_other_kinds", OtherKindsSpec()});
  }
  return pairings;
}

class EveryDevice : public ::testing::TestWithParam<Pairing> {
 protected:
  EveryDevice()
      : model_(RandomModel(GetParam().spec)),
        opener_(GetParam().device.load(model_)),
        bound_(LogitErrorOf(GetParam().device, model_)) {}

  std::unique_ptr<DecodeDevice> Open() { return opener_(); }

  // Equal bits where the device promises them, else within its row of the error table.
  void ExpectSame(std::span<const float> got, std::span<const float> want, const std::string& what) const {
    ASSERT_EQ(got.size(), want.size()) << what;
    if (GetParam().device.exact) {
      EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin())) << what;
    } else {
      EXPECT_LE(RelativeError(got, want), bound_) << what;
    }
  }

  TinyModel model_;
  std::function<std::unique_ptr<DecodeDevice>()> opener_;
  double bound_;
};

TEST_P(EveryDevice, AgreesWithReference) {
  const auto ids = SomeTokens(70, model_.spec.vocab);
  const auto want = Alone(*OpenReferenceDevice(LoadReferenceModel(model_.spec, model_.tensors)), ids, 70);
  const auto got = Alone(*Open(), ids, 70);
  EXPECT_LE(RelativeError(got, want), bound_);
}

TEST_P(EveryDevice, AnyChunkingGivesTheSame) {
  const auto device = Open();
  for (int length : {1, 2, 17, 64, 130}) {
    const auto ids = SomeTokens(length, model_.spec.vocab);
    const auto whole = Alone(*device, ids, length);
    for (int chunk : {1, 3, 16, 33, 100})
      if (chunk < length)
        ExpectSame(Alone(*device, ids, chunk), whole, fmt::format("{} tokens by {}", length, chunk));
  }
}

TEST_P(EveryDevice, BatchRowEqualsAlone) {
  const auto device = Open();
  for (int batch : {2, 5, 9, 16, 33}) {
    std::vector<std::vector<TokenId>> prompts;
    std::vector<TokenId> ids;
    std::vector<int32_t> pos, wanted;
    std::vector<SlotId> slots;
    for (int b = 0; b < batch; ++b) {
      prompts.push_back(SomeTokens(3 + b * 5 % 40, model_.spec.vocab, unsigned(3 + b)));
      const int last = int(prompts.back().size()) - 1;
      slots.push_back(device->Open(64, {}));
      Feed(*device, slots.back(), prompts.back(), 0, last, 64);
      ids.push_back(prompts.back().back()), pos.push_back(last), wanted.push_back(b);
    }
    const Logits all = device->RunLogits({ids, pos, slots, wanted});
    for (int b = 0; b < batch; ++b) {
      const auto row = std::span(all.values).subspan(size_t(b) * size_t(all.vocab), size_t(all.vocab));
      ExpectSame(row, Alone(*device, prompts[size_t(b)], 64), fmt::format("row {} of {}", b, batch));
    }
    for (SlotId slot : slots) device->Close(slot);
  }
}

// Rows of several sequences of different lengths in one step, as chunked prefill beside decode makes them.
TEST_P(EveryDevice, MixedStepEqualsAlone) {
  const auto device = Open();
  const auto a = SomeTokens(40, model_.spec.vocab), b = SomeTokens(25, model_.spec.vocab, 11);
  const SlotId slot_a = device->Open(64, {}), slot_b = device->Open(64, {});
  Feed(*device, slot_a, a, 0, 39, 64);
  std::vector<TokenId> ids = {a[39]};
  ids.insert(ids.end(), b.begin(), b.end());
  std::vector<int32_t> pos = {39};
  std::vector<SlotId> slots = {slot_a};
  for (int i = 0; i < 25; ++i) pos.push_back(i), slots.push_back(slot_b);
  const int32_t wanted[] = {0, 25};
  const Logits both = device->RunLogits({ids, pos, slots, wanted});
  const std::span<const float> values(both.values);
  ExpectSame(values.first(size_t(both.vocab)), Alone(*device, a, 64), "decode row");
  ExpectSame(values.last(size_t(both.vocab)), Alone(*device, b, 64), "prefill rows");
}

// Prefill on one instance, handoff, decode on another: the product's own path, at every length.
TEST_P(EveryDevice, HandoffEqualsAlone) {
  const auto decode = Open();
  PrefillVia prefill(Open());
  const int chunk = 48;
  // The reference takes long in double; devices that promise bits show them at every length.
  const int step = GetParam().device.exact ? 1 : 23;
  for (int length = 1; length <= 300; length += length < 70 ? 1 : step) {
    const auto ids = SomeTokens(length, model_.spec.vocab);
    const auto session = prefill.Begin(length, {}, {});
    const SlotId slot = decode->Open(length, {});
    std::vector<KvSegment> segments;  // all alive to the end: what is published must not change
    for (int at = 0; at < length - 1; at += chunk)
      segments.push_back(
          session->Run(std::span(ids).subspan(size_t(at), size_t(std::min(chunk, length - 1 - at))), at));
    for (const KvSegment& segment : segments) decode->Import(slot, segment);
    ASSERT_EQ(decode->Length(slot), length - 1);
    ExpectSame(Feed(*decode, slot, ids, length - 1, length, 1), Alone(*decode, ids, length),
               fmt::format("{} tokens", length));
    decode->Close(slot);
  }
}

TEST_P(EveryDevice, PrefillResumesBehindAPrefix) {
  const auto decode = Open();
  PrefillVia prefill(Open());
  const auto ids = SomeTokens(90, model_.spec.vocab);
  const auto want = Alone(*decode, ids, 90);
  for (int prefix : {1, 31, 32, 33, 64, 88}) {
    const auto first = prefill.Begin(90, {}, {})->Run(std::span(ids).first(size_t(prefix)), 0);
    const KvSegment prefixes[] = {first};
    const auto rest = prefill.Begin(90, {}, prefixes)
                          ->Run(std::span(ids).subspan(size_t(prefix), size_t(89 - prefix)), prefix);
    const SlotId slot = decode->Open(90, {});
    decode->Import(slot, first);
    decode->Import(slot, rest);
    ExpectSame(Feed(*decode, slot, ids, 89, 90, 1), want, fmt::format("prefix of {}", prefix));
    decode->Close(slot);
  }
}

TEST_P(EveryDevice, PublishedSegmentsDoNotChange) {
  const auto device = Open();
  const auto ids = SomeTokens(60, model_.spec.vocab), other = SomeTokens(60, model_.spec.vocab, 13);
  const SlotId slot = device->Open(60, {});
  Feed(*device, slot, ids, 0, 59, 59);
  const KvSegment published = device->Export(slot, 0, 59);
  device->Truncate(slot, 20);
  Feed(*device, slot, other, 20, 60, 40);  // writes where the segment's rows lie
  const SlotId again = device->Open(60, {});
  device->Import(again, published);
  device->Close(slot);
  ExpectSame(Feed(*device, again, ids, 59, 60, 1), Alone(*device, ids, 60), "after truncation and reuse");
}

TEST_P(EveryDevice, TruncateForgets) {
  const auto device = Open();
  const auto ids = SomeTokens(50, model_.spec.vocab), other = SomeTokens(50, model_.spec.vocab, 13);
  const auto want = Alone(*device, ids, 50);
  const SlotId slot = device->Open(50, {});
  Feed(*device, slot, other, 0, 50, 50);
  for (int keep : {0, 1, 16, 33, 49}) {
    device->Truncate(slot, 0);
    Feed(*device, slot, ids, 0, 50, 50);
    device->Truncate(slot, keep);
    ExpectSame(Feed(*device, slot, ids, keep, 50, 9), want, fmt::format("kept {}", keep));
  }
}

// Keys as a prefill program without rotation gives them, in the segment's own layout and packed.
TEST_P(EveryDevice, RawKeysAreRotatedOnce) {
  for (const LayerSpec& layer : model_.spec.layers)
    if (AttentionOf(layer).qk_norm && AttentionOf(layer).qk_norm->after_rope)
      GTEST_SKIP() << "keys that are normed once rotated have no raw form";
  const auto device = Open();
  const auto ids = SomeTokens(60, model_.spec.vocab);
  const auto want = Alone(*device, ids, 60);
  const RawPrefill raw = RunRawPrefill(model_, std::span(ids).first(59));
  const SlotId slot = device->Open(60, {});
  device->Import(slot, raw.segment);
  const auto got = Feed(*device, slot, ids, 59, 60, 1);
  EXPECT_LE(RelativeError(got, want), bound_);
}

// Prefill on each device, decode on each: as the reference alone, within the wider of the two bounds.
TEST(AcrossDevices, PrefillHereDecodeThere) {
  for (const ModelSpec& spec : {MixedSpec(), OtherKindsSpec()}) {
    TinyModel model = RandomModel(spec);
    const auto ids = SomeTokens(75, spec.vocab);
    const std::vector<TestDevice> devices = AllDevices();
    std::vector<std::function<std::unique_ptr<DecodeDevice>()>> open;
    for (const TestDevice& device : devices) open.push_back(device.load(model));
    const auto want = Alone(*OpenReferenceDevice(LoadReferenceModel(spec, model.tensors)), ids, 75);
    for (size_t from = 0; from < devices.size(); ++from) {
      PrefillVia prefill(open[from]());
      for (size_t to = 0; to < devices.size(); ++to) {
        const auto decode = open[to]();
        const auto session = prefill.Begin(75, {}, {});
        const SlotId slot = decode->Open(75, {});
        decode->Import(slot, session->Run(std::span(ids).first(50), 0));
        decode->Import(slot, session->Run(std::span(ids).subspan(50, 24), 50));
        EXPECT_LE(RelativeError(Feed(*decode, slot, ids, 74, 75, 1), want),
                  std::max(LogitErrorOf(devices[from], model), LogitErrorOf(devices[to], model)))
            << devices[from].name << " to " << devices[to].name;
      }
    }
  }
}

TEST(PackedPrefill, RawKeysAreRotatedOnce) {
  ModelSpec spec = MixedSpec();  // every layer with the same heads, as that layout needs
  spec.layers = {spec.layers[0], spec.layers[0], spec.layers[0]};
  TinyModel model = RandomModel(spec);
  const auto ids = SomeTokens(60, spec.vocab);
  const RawPrefill raw = RunRawPrefill(model, std::span(ids).first(59));
  for (const TestDevice& device : AllDevices()) {
    const auto decode = device.load(model)();
    const SlotId slot = decode->Open(60, {});
    const auto packed = PackAsOneTensor(spec, raw.segment);
    decode->Import(slot, packed);
    EXPECT_LE(RelativeError(Feed(*decode, slot, ids, 59, 60, 1), Alone(*decode, ids, 60)),
              LogitErrorOf(device, model))
        << device.name;
  }
}

TEST_P(EveryDevice, PipelinedStepsEqualSteppedOnes) {
  const auto device = Open();
  const auto prompt = SomeTokens(9, model_.spec.vocab);
  const SampleSpec greedy[] = {{}};
  const auto step = [&](SlotId slot, TokenId id, int at) {
    const TokenId ids[] = {id};
    const int32_t pos[] = {at}, wanted[] = {0};
    const SlotId slots[] = {slot};
    return device->Submit({{ids, pos, slots, wanted}, greedy});
  };
  std::vector<TokenId> stepped, pipelined;
  const SlotId a = device->Open(40, {});
  Feed(*device, a, prompt, 0, 8, 8);
  TokenId last = prompt[8];
  for (int i = 8; i < 30; ++i) {
    last = device->Collect(step(a, last, i)).at(0).sampled.token;
    stepped.push_back(last);
  }
  const SlotId b = device->Open(40, {});
  Feed(*device, b, prompt, 0, 8, 8);
  StepId running = step(b, prompt[8], 8);
  for (int i = 9; i < 30; ++i) {
    const StepId next = step(b, kLastSampled, i);
    pipelined.push_back(device->Collect(running).at(0).sampled.token);
    running = next;
  }
  EXPECT_THROW((step(b, kLastSampled, 30), step(b, kLastSampled, 31)), Error);  // a third uncollected step
  pipelined.push_back(device->Collect(running).at(0).sampled.token);
  EXPECT_EQ(pipelined, stepped);
}

INSTANTIATE_TEST_SUITE_P(Devices, EveryDevice, ::testing::ValuesIn(AllPairings()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pd::test
