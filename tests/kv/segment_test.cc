#include "kv/segment.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

// Two layers of 2 heads x 4 dims.
ModelSpec Spec() {
  ModelSpec spec;
  spec.width = 8, spec.vocab = 10, spec.max_context = 64;
  spec.layers.resize(2);
  AttentionSpec attention;
  attention.heads = attention.kv_heads = 2, attention.head_dim = 4;
  for (LayerSpec& layer : spec.layers) layer.mixer = attention;
  return spec;
}

// What element (layer, value?, head, token, dim) holds in every layout below.
float Element(int layer, bool value, int head, int token, int dim) {
  return float(layer * 1000 + value * 500 + head * 100 + token * 10 + dim) / 8;
}

// A segment of tokens [3, 8) whose layers have the given strides, in f32.
KvSegment Make(int64_t head_stride, int64_t token_stride, int64_t dim_stride) {
  KvSegment segment{.first = 3, .count = 5};
  auto memory = std::make_shared<std::vector<std::vector<float>>>();
  for (int layer = 0; layer < 2; ++layer) {
    KvLayerView view{nullptr, nullptr, DType::kF32, head_stride, token_stride, dim_stride};
    for (bool value : {false, true}) {
      auto& floats = memory->emplace_back(2048, NAN);
      for (int h = 0; h < 2; ++h)
        for (int t = 0; t < 5; ++t)
          for (int d = 0; d < 4; ++d)
            floats[size_t(h * head_stride + t * token_stride + d * dim_stride)] =
                Element(layer, value, h, t + 3, d);
      (value ? view.v : view.k) = reinterpret_cast<const std::byte*>(floats.data());
    }
    segment.layers.push_back(view);
  }
  segment.owner = memory;
  return segment;
}

void ExpectElements(const KvSegment& segment) {
  std::vector<float> head(4);
  for (int layer = 0; layer < 2; ++layer) {
    const KvLayerView& view = segment.kv(size_t(layer));
    for (bool value : {false, true})
      for (int h = 0; h < 2; ++h)
        for (int t = 3; t < 8; ++t) {
          ReadHead(view, value ? view.v : view.k, h, t - segment.first, head);
          for (int d = 0; d < 4; ++d) EXPECT_EQ(head[size_t(d)], Element(layer, value, h, t, d));
        }
  }
}

TEST(KvSegment, ReadsEveryLayout) {
  const ModelSpec spec = Spec();
  for (const auto& [head, token, dim] : {std::array{20, 4, 1},  // [heads, tokens, dims]
                                         std::array{4, 8, 1},   // [tokens, heads, dims]
                                         std::array{20, 1, 5},  // [heads, dims, tokens]: a Neural Engine's
                                         std::array{256, 1, 64}}) {  // the same with padded rows
    const KvSegment segment = Make(head, token, dim);
    CheckSegment(segment, spec, {});
    ExpectElements(segment);
    EXPECT_EQ(CompactBytes(segment, spec), size_t(2 * 2 * 5 * 8 * 4));
  }
}

TEST(KvSegment, RefusesWhatIsNotOurs) {
  const ModelSpec spec = Spec();
  const auto refused = [&](auto change, const char* why) {
    KvSegment segment = Make(20, 4, 1);
    change(segment);
    try {
      CheckSegment(segment, spec, {});
      ADD_FAILURE() << "accepted: " << why;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kBadRequest);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused([](KvSegment& s) { s.id.weights = 1; }, "another model");
  refused([](KvSegment& s) { s.id.spec = 1; }, "another model");
  refused([](KvSegment& s) { s.id.variant.rope.length = 9; }, "RoPE");
  refused([](KvSegment& s) { s.layers.pop_back(); }, "number of layers");
  refused([](KvSegment& s) { s.id.variant.adapter = 3; }, "adapter");
  refused([](KvSegment& s) { s.first = -1; }, "negative");
  refused([](KvSegment& s) { s.layers[1] = std::monostate(); }, "or the reverse");
  refused([](KvSegment& s) { s.layers[1] = StateView(); }, "or the reverse");
  refused([](KvSegment& s) { s.kv(0).dtype = DType::kQ8_0; }, "f32, f16 or bf16");
  refused([](KvSegment& s) { s.kv(1).v = nullptr; }, "no memory");
  // What Core ML was seen to report: strides of zero, and strides that fold two tokens onto one place.
  refused([](KvSegment& s) { s.kv(0).token_stride = 0; }, "overlap");
  refused([](KvSegment& s) { s.kv(0).head_stride = s.kv(0).token_stride = s.kv(0).dim_stride = 0; },
          "overlap");
  refused([](KvSegment& s) { s.kv(0).head_stride = 19; }, "overlap");
  refused([](KvSegment& s) { s.kv(0).token_stride = -4; }, "overlap");
}

// How a segment was computed is the cache's affair: two devices may hand over to each other.
TEST(KvSegment, PassesBetweenProducers) {
  KvSegment segment = Make(20, 4, 1);
  segment.id.computed = ComputedBy("mlx q4");
  EXPECT_NO_THROW(CheckSegment(segment, Spec(), {.computed = ComputedBy("cpu")}));
}

// ---- layers with a state ----

// Attention, a short convolution, nothing, a delta net.
ModelSpec HybridSpec() {
  ModelSpec spec = Spec();
  spec.layers.resize(4);
  spec.layers[1].mixer = ShortConvSpec{.conv = {.channels = 6, .taps = 3}};
  spec.layers[2].mixer = std::monostate();
  DeltaNetSpec delta{.key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 4};
  delta.conv = {.channels = 2 * 3 + 2 * 4, .taps = 4};
  spec.layers[3].mixer = delta;
  return spec;
}

KvSegment HybridSegment(const std::vector<float>& tail1, const std::vector<float>& state3,
                        const std::vector<float>& tail3) {
  KvSegment segment = Make(20, 4, 1);
  segment.layers[1] = StateView{{}, tail1};
  segment.layers.push_back(std::monostate());
  segment.layers.push_back(StateView{state3, tail3});
  return segment;
}

TEST(KvSegment, HoldsStatesOfTheirEnd) {
  const ModelSpec spec = HybridSpec();
  const std::vector<float> tail1(12, 1.5f), state3(24, 2.5f), tail3(42, 3.5f);
  const KvSegment whole = HybridSegment(tail1, state3, tail3);
  CheckSegment(whole, spec, {});
  EXPECT_EQ(CompactBytes(whole, spec), 2 * 5 * 8 * 4u + (12 + 24 + 42) * 4u);
  EXPECT_EQ(MemoryBytes(spec, {.kv = DType::kF32}, 5), CompactBytes(whole, spec));

  const KvSegment copy = Compact(whole, spec);
  ASSERT_NE(copy.owner, whole.owner);
  const auto& state = std::get<StateView>(copy.layers[3]);
  EXPECT_EQ(std::vector<float>(state.state.begin(), state.state.end()), state3);
  EXPECT_EQ(std::vector<float>(state.tail.begin(), state.tail.end()), tail3);
  EXPECT_EQ(std::get<StateView>(copy.layers[1]).tail[11], 1.5f);

  const KvSegment end = Slice(whole, 5, 3), middle = Slice(whole, 4, 2);
  CheckSegment(end, spec, {});
  CheckSegment(middle, spec, {});
  EXPECT_TRUE(std::holds_alternative<StateView>(end.layers[3]));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(middle.layers[3])) << "a state holds at the end only";
  std::vector<float> head(4);
  ReadHead(middle.kv(0), middle.kv(0).v, 1, 0, head);
  EXPECT_EQ(head[2], Element(0, true, 1, 4, 2));

  KvSegment wrong = whole;
  wrong.layers[3] = StateView{std::span(state3).first(23), tail3};
  EXPECT_THROW(CheckSegment(wrong, spec, {}), Error);
}

}  // namespace
}  // namespace pd
