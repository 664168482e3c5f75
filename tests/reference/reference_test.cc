#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "device/prefill_via.h"
#include "reference/count_ops.h"
#include "reference/reference_ops.h"
#include "tests/device_checks.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

using test::Alone;
using test::Feed;
using test::SomeTokens;

class Reference : public ::testing::Test {
 protected:
  Reference() : model_(test::RandomModel(test::MixedSpec())) {
    loaded_ = LoadReferenceModel(model_.spec, model_.tensors);
  }
  std::unique_ptr<DecodeDevice> Open() const { return OpenReferenceDevice(loaded_); }
  test::TinyModel model_;
  std::shared_ptr<const ReferenceModel> loaded_;
};

TEST_F(Reference, ChunksEqualWhole) {
  const auto ids = SomeTokens(50, model_.spec.vocab);
  const auto device = Open();
  const auto whole = Alone(*device, ids, 50);
  ASSERT_EQ(whole.size(), size_t(model_.spec.vocab));
  for (int chunk : {1, 7, 20, 49}) EXPECT_EQ(Alone(*device, ids, chunk), whole) << chunk;
}

TEST_F(Reference, BatchRowEqualsAlone) {
  const auto device = Open();
  const auto a = SomeTokens(31, model_.spec.vocab), b = SomeTokens(12, model_.spec.vocab, 11);
  const SlotId slot_a = device->Open(64, {}), slot_b = device->Open(64, {});
  Feed(*device, slot_a, a, 0, 30, 30);
  Feed(*device, slot_b, b, 0, 11, 4);
  const TokenId ids[] = {a[30], b[11]};
  const int32_t pos[] = {30, 11}, wanted[] = {0, 1};
  const SlotId slots[] = {slot_a, slot_b};
  const Logits both = device->RunLogits({ids, pos, slots, wanted});
  const auto alone_a = Alone(*device, a, 31), alone_b = Alone(*device, b, 12);
  EXPECT_TRUE(std::equal(alone_a.begin(), alone_a.end(), both.values.begin()));
  EXPECT_TRUE(std::equal(alone_b.begin(), alone_b.end(), both.values.begin() + both.vocab));
}

TEST_F(Reference, HandoffEqualsAloneWithinRounding) {
  const auto ids = SomeTokens(45, model_.spec.vocab);
  const auto decode = Open();
  const auto want = Alone(*decode, ids, 45);
  PrefillVia prefill(Open());
  const auto session = prefill.Begin(64, {}, {});
  const SlotId slot = decode->Open(64, {});
  for (int at = 0; at < 44; at += 16)
    decode->Import(slot, session->Run(std::span(ids).subspan(size_t(at), size_t(std::min(16, 44 - at))), at));
  EXPECT_EQ(decode->Length(slot), 44);
  const auto got = Feed(*decode, slot, ids, 44, 45, 1);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4) << i;  // keys travel as f32
}

TEST_F(Reference, TruncateForgets) {
  const auto device = Open();
  const auto ids = SomeTokens(30, model_.spec.vocab);
  const SlotId slot = device->Open(40, {});
  Feed(*device, slot, SomeTokens(40, model_.spec.vocab, 13), 0, 40, 40);
  device->Truncate(slot, 0);
  Feed(*device, slot, ids, 0, 30, 30);
  device->Truncate(slot, 10);
  EXPECT_EQ(Feed(*device, slot, ids, 10, 30, 6), Alone(*device, ids, 30));
}

TEST_F(Reference, RefusesWhatDoesNotFit) {
  const auto device = Open();
  EXPECT_THROW(device->Open(0, {}), Error);
  EXPECT_THROW(device->Open(model_.spec.max_context + 1, {}), Error);
  const SlotId slot = device->Open(4, {});
  const auto ids = SomeTokens(8, model_.spec.vocab);
  EXPECT_THROW(Feed(*device, slot, ids, 0, 5, 5), Error);  // capacity
  EXPECT_THROW(Feed(*device, slot, ids, 1, 2, 1), Error);  // a gap
  EXPECT_EQ(device->Length(slot), 0);
  EXPECT_THROW(device->Export(slot, 0, 1), Error);
  EXPECT_THROW(device->Truncate(slot, 1), Error);
  EXPECT_THROW(device->Close(slot + 1), Error);
  const TokenId outside[] = {model_.spec.vocab}, unsampled[] = {kLastSampled};
  const int32_t pos[] = {0};
  const SlotId slots[] = {slot};
  EXPECT_THROW(device->RunLogits({outside, pos, slots, {}}), Error);
  EXPECT_THROW(device->RunLogits({unsampled, pos, slots, {}}), Error);
  test::TinyModel fine_tune = test::RandomModel(model_.spec, 2);
  PrefillVia other(OpenReferenceDevice(LoadReferenceModel(fine_tune.spec, fine_tune.tensors)));
  EXPECT_THROW(device->Import(slot, other.Begin(4, {}, {})->Run(std::span(ids).first(2), 0)),
               Error);  // other weights
}

// A model's layers may be computed in parts, the stream passed on.
TEST(ReferenceForward, RangesOfLayersEqualTheWhole) {
  for (const ModelSpec& spec : {test::MixedSpec(), test::OtherKindsSpec()}) {
    const test::TinyModel model = test::RandomModel(spec);
    const auto loaded = LoadReferenceModel(model.spec, model.tensors);
    const auto ids = SomeTokens(30, spec.vocab);
    std::vector<int32_t> pos(ids.size());
    std::iota(pos.begin(), pos.end(), 0);
    const std::vector<SlotId> slots(ids.size(), 0);
    const Rows rows{ids, pos, slots, pos}, memory_only{ids, pos, slots, {}};
    ReferenceOps whole(loaded);
    whole.OpenSlot(30, {});
    const auto want = Forward(whole, spec, loaded->weights, rows);
    const int layers = int(spec.layers.size());
    for (int k = 0; k <= layers; ++k) {
      ReferenceOps parts(loaded);
      parts.OpenSlot(30, {});
      auto lower = Forward(parts, spec, loaded->weights, rows, {0, k});
      ASSERT_EQ(lower.stream.has_value(), k < layers);
      EXPECT_EQ(lower.logits.has_value(), k == layers);
      if (k == layers) continue;
      const auto upper = Forward(parts, spec, loaded->weights, rows, {k, layers}, std::move(lower.stream));
      EXPECT_EQ(upper.logits->values, want->values) << k;
      // Without logits a pass ends with the last layer's memory.
      auto prefix = Forward(parts, spec, loaded->weights, memory_only, {0, k});
      const auto nothing =
          Forward(parts, spec, loaded->weights, memory_only, {k, layers}, std::move(prefix.stream));
      EXPECT_FALSE(nothing.stream || nothing.logits);
    }
  }
}

// Two rows of four channels, by hand.
TEST(ReferenceOperations, LayerNormAndUngatedMlp) {
  const test::TinyModel model = test::RandomModel(test::MixedSpec());
  ReferenceOps ops(LoadReferenceModel(model.spec, model.tensors));
  const ReferenceOps::Tensor x{2, 4, {1, 2, 3, 6, -1, -1, 1, 1}};
  const NormWeights<ReferenceOps::Weight> w{{{1, 1, 2, 2}}, {{0, 1, 0, 1}}};
  // Means 3 and 0, variances (4 + 1 + 0 + 9) / 4 = 3.5 and 1.
  const auto y = ops.Norm(x, w, {.eps = 0.5f, .mean = true, .bias = true});
  const double a = 1 / std::sqrt(3.5 + 0.5), b = 1 / std::sqrt(1 + 0.5);
  const std::vector<double> want = {-2 * a, 1 - a, 0, 1 + 2 * 3 * a, -b, 1 - b, 2 * b, 1 + 2 * b};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y.values[i], want[i], 1e-15) << i;

  Pass<ReferenceOps> pass{ops, Rows{}};
  const MlpWeights<ReferenceOps::Weight> mlp{
      {}, {{1, 0, 0, 0, 0, 1, 0, 0}, {}}, {{1, 1, 0, 0, 0, 0, 2, 0}, {}}};
  const MlpSpec relu2{.hidden = 2, .gate = {.act = Activation::kRelu2}, .gated = false};
  // up: [1, 2] and [-1, -1]; squared where positive: [1, 4] and [0, 0].
  EXPECT_EQ(pass.Feed(relu2, mlp, x).values, (std::vector<double>{5, 0, 0, 2, 0, 0, 0, 0}));
}

TEST_F(Reference, CountsEveryWeightOnce) {
  for (bool tied : {true, false}) {
    const ModelSpec spec = test::MixedSpec(tied);
    double total = 0;
    test::TinyModel model = test::RandomModel(spec);
    ForEachWeight(spec, model.tensors,
                  [&](TensorView& t, const WeightInfo&) { total += double(t.rows() * t.columns()); });
    const double looked_up =
        tied ? 0 : double(spec.vocab - 1) * spec.width;  // one row of the embedding is read
    const double twice = tied ? spec.width : 0;          // as a row, and as the head
    EXPECT_EQ(CostOf(spec, 0, 1, 1).weight_values, total - looked_up + twice);
  }
}

}  // namespace
}  // namespace pd
