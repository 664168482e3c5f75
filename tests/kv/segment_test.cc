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
  for (LayerSpec& layer : spec.layers) {
    layer.attn.heads = layer.attn.kv_heads = 2;
    layer.attn.head_dim = 4;
  }
  return spec;
}

// What element (layer, value?, head, token, dim) holds in every layout below.
float Element(int layer, bool value, int head, int token, int dim) {
  return float(layer * 1000 + value * 500 + head * 100 + token * 10 + dim) / 8;
}

// A segment of tokens [3, 8) whose layers have the given strides, in f32.
KvSegment Make(int64_t head_stride, int64_t token_stride, int64_t dim_stride) {
  KvSegment segment;
  auto memory = std::make_shared<std::vector<std::vector<float>>>();
  for (int layer = 0; layer < 2; ++layer) {
    KvLayerView view{3, 5, nullptr, nullptr, DType::kF32, head_stride, token_stride, dim_stride};
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
    const KvLayerView& view = segment.layers[size_t(layer)];
    for (bool value : {false, true})
      for (int h = 0; h < 2; ++h)
        for (int t = 3; t < 8; ++t) {
          ReadHead(view, value ? view.v : view.k, h, t, head);
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
    EXPECT_EQ(segment.bytes(spec), size_t(2 * 2 * 5 * 8 * 4));
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
  refused([](KvSegment& s) { s.id.rope.length = 9; }, "RoPE");
  refused([](KvSegment& s) { s.layers.pop_back(); }, "number of layers");
  refused([](KvSegment& s) { s.layers[1].count = 4; }, "different tokens");
  refused([](KvSegment& s) { s.layers[1].first = 4; }, "different tokens");
  refused([](KvSegment& s) { s.layers[0].dtype = DType::kQ8_0; }, "f32, f16 or bf16");
  refused([](KvSegment& s) { s.layers[1].v = nullptr; }, "no memory");
  // What Core ML was seen to report: strides of zero, and strides that fold two tokens onto one place.
  refused([](KvSegment& s) { s.layers[0].token_stride = 0; }, "overlap");
  refused(
      [](KvSegment& s) { s.layers[0].head_stride = s.layers[0].token_stride = s.layers[0].dim_stride = 0; },
      "overlap");
  refused([](KvSegment& s) { s.layers[0].head_stride = 19; }, "overlap");
  refused([](KvSegment& s) { s.layers[0].token_stride = -4; }, "overlap");
}

TEST(KvSegment, ViewsPackedLayout) {
  const ModelSpec spec = Spec();
  auto memory = std::make_shared<std::array<std::vector<float>, 2>>();
  for (bool value : {false, true})
    for (int layer = 0; layer < 2; ++layer)
      for (int t = 3; t < 8; ++t)
        for (int h = 0; h < 2; ++h)
          for (int d = 0; d < 4; ++d) (*memory)[value].push_back(Element(layer, value, h, t, d));
  const auto bytes = [&](int i) { return reinterpret_cast<const std::byte*>((*memory)[size_t(i)].data()); };
  const KvSegment segment =
      ViewPacked(spec, {}, KeyForm::kRaw, bytes(0), bytes(1), DType::kF32, 3, 5, memory);
  CheckSegment(segment, spec, {});
  EXPECT_EQ(segment.key_form, KeyForm::kRaw);
  ExpectElements(segment);

  ModelSpec uneven = spec;
  uneven.layers[1].attn.head_dim = 8;
  EXPECT_THROW(ViewPacked(uneven, {}, KeyForm::kRaw, bytes(0), bytes(1), DType::kF32, 3, 5, memory), Error);
}

}  // namespace
}  // namespace pd
