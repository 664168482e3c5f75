// Slots: what Import makes of every layout a segment may have, and what Export promises.
#include "cpu/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/tiny_model.h"

namespace pd::cpu {
namespace {

// Two layers of different heads, one of them with half of its dimensions rotated.
ModelSpec TwoLayers() {
  ModelSpec spec = test::MixedSpec();
  LayerSpec a = spec.layers[0], b = spec.layers[1];
  a.attn.kv_heads = 3, a.attn.heads = 3, a.attn.head_dim = 10;
  a.attn.rope = RopeSpec{10000, 6, {}};
  b.attn.kv_heads = 1, b.attn.head_dim = 33;
  b.attn.rope.reset();
  spec.layers = {a, b};
  return spec;
}

enum class Layout { kTokens, kHeads, kDims, kSparse };  // what is contiguous; kSparse: nothing

// Random keys and values of tokens [first, first + count) as plain floats, and a segment that holds them.
struct Source {
  Source(const ModelSpec& spec, int first, int count, DType dtype, Layout layout, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (const LayerSpec& layer : spec.layers) {
      const AttentionSpec& a = layer.attn;
      KvLayerView view{first, count, nullptr, nullptr, dtype, 0, 0, 1};
      const int64_t n = count, d = a.head_dim, k = a.kv_heads;
      if (layout == Layout::kTokens) view.head_stride = n * d, view.token_stride = d;
      if (layout == Layout::kHeads) view.head_stride = d, view.token_stride = k * d;
      if (layout == Layout::kDims) view.head_stride = n * d, view.token_stride = 1, view.dim_stride = n;
      if (layout == Layout::kSparse)
        view.dim_stride = 3, view.token_stride = 3 * d + 2, view.head_stride = n * view.token_stride + 5;
      for (const std::byte** part : {&view.k, &view.v}) {
        const auto size = size_t(k * view.head_stride + n * view.token_stride + d * view.dim_stride);
        auto memory = std::make_shared<std::vector<std::byte>>(size * RowBytes(dtype, 1));
        for (int64_t h = 0; h < k; ++h)
          for (int64_t t = 0; t < n; ++t)
            for (int64_t i = 0; i < d; ++i) {
              const float value[] = {normal(generator)};
              const int64_t at = h * view.head_stride + t * view.token_stride + i * view.dim_stride;
              StoreRow(dtype, value, memory->data() + size_t(at) * RowBytes(dtype, 1));
            }
        *part = memory->data();
        memories_.push_back(std::move(memory));
      }
      segment.layers.push_back(view);
    }
  }
  KvSegment segment;

 private:
  std::vector<std::shared_ptr<std::vector<std::byte>>> memories_;
};

RopeTables TablesFor(const ModelSpec& spec) {
  return {std::make_shared<RopeTable>(*spec.layers[0].attn.rope, RopeVariant{}, spec.max_context)};
}

// One head and token of the slot as floats.
std::vector<float> Read(const uint16_t* head, int dim, int token) {
  std::vector<float> values;
  for (int i = 0; i < dim; ++i) values.push_back(ToFloat(F16{head[token * dim + i]}));
  return values;
}

TEST(KvSlot, ImportsEveryLayout) {
  const ModelSpec spec = TwoLayers();
  ThreadPool pool(2);
  for (Level level : kAllLevels)
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
      for (Layout layout : {Layout::kTokens, Layout::kHeads, Layout::kDims, Layout::kSparse})
        for (KeyForm form : {KeyForm::kRotated, KeyForm::kRaw})
          for (int count : {1, 15, 16, 40}) {
            const Kernels* kernels = FindKernels(level);
            if (!kernels) continue;
            const int first = 7;
            Source source(spec, first, count, dtype, layout, unsigned(count));
            source.segment.key_form = form;
            KvSlot slot(spec, 64, {}, TablesFor(spec));
            slot.BeginWrite(first, first + count);
            slot.Import(source.segment, *kernels, pool);
            for (size_t i = 0; i < spec.layers.size(); ++i) {
              const AttentionSpec& a = spec.layers[i].attn;
              const KvLayerView& view = source.segment.layers[i];
              std::vector<float> want(size_t(a.head_dim));
              const auto rounded = [&] {
                for (float& f : want) f = ToFloat(ToF16(f));
                return want;
              };
              for (int h = 0; h < a.kv_heads; ++h)
                for (int t = first; t < first + count; ++t) {
                  ReadHead(view, view.v, h, t, want);
                  ASSERT_EQ(Read(slot.Values(int(i), h), a.head_dim, t), rounded());
                  ReadHead(view, view.k, h, t, want);
                  if (form == KeyForm::kRaw && a.rope) {
                    const RopeTable& table = slot.TableOf(*a.rope);
                    FindKernels(Level::kScalar)->rope(want.data(), table.Cos(t), table.Sin(t), table.half());
                  }
                  ASSERT_EQ(Read(slot.Keys(int(i), h), a.head_dim, t), rounded());
                }
            }
          }
}

TEST(KvSlot, ExportsViewsOfItsOwnMemory) {
  const ModelSpec spec = TwoLayers();
  ThreadPool pool(1);
  KvSlot slot(spec, 50, {3}, TablesFor(spec));
  Source source(spec, 0, 20, DType::kF16, Layout::kHeads, 1);
  slot.BeginWrite(0, 20);
  slot.Import(source.segment, *FindKernels(Level::kScalar), pool);
  const KvSegment out = slot.Export(4, 16);
  EXPECT_EQ(out.id.rope, RopeVariant{3});
  EXPECT_EQ(out.first(), 4);
  EXPECT_EQ(out.count(), 16);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& a = spec.layers[i].attn;
    const KvLayerView& view = out.layers[i];
    EXPECT_EQ(static_cast<const void*>(view.k), slot.Keys(int(i), 0) + 4 * a.head_dim);
    std::vector<float> got(size_t(a.head_dim)), want = got;
    for (int h = 0; h < a.kv_heads; ++h)
      for (int t = 4; t < 20; ++t) {
        ReadHead(view, view.v, h, t, got);
        ReadHead(source.segment.layers[i], source.segment.layers[i].v, h, t, want);
        EXPECT_EQ(got, want);
      }
  }
}

// The slot moves away from memory that somebody reads, and only then.
TEST(KvSlot, WritesDoNotReachPublishedRows) {
  const ModelSpec spec = TwoLayers();
  KvSlot slot(spec, 50, {}, TablesFor(spec));
  const auto keys = [&] { return slot.Keys(0, 0); };
  slot.BeginWrite(0, 30);
  for (int i = 0; i < 30 * 10; ++i) keys()[i] = uint16_t(i);
  const uint16_t* const first_memory = keys();

  {
    const KvSegment published = slot.Export(0, 20);
    slot.BeginWrite(20, 21);  // behind what is published
    EXPECT_EQ(keys(), first_memory);
    slot.BeginWrite(10, 12);
    EXPECT_NE(keys(), first_memory);
    EXPECT_EQ(0, std::memcmp(keys(), first_memory, 10 * 10 * sizeof(uint16_t)));  // rows before are kept
    keys()[10 * 10] = 0xffff;
    EXPECT_EQ(first_memory[10 * 10], 100);
  }

  const uint16_t* const second_memory = keys();
  slot.BeginWrite(5, 6);  // nothing of this memory is published
  EXPECT_EQ(keys(), second_memory);
  {
    const KvSegment published = slot.Export(0, 20);
  }
  slot.BeginWrite(5, 6);  // what was published is no longer read
  EXPECT_EQ(keys(), second_memory);
}

TEST(KvSlot, SegmentsOutliveIt) {
  const ModelSpec spec = TwoLayers();
  auto slot = std::make_unique<KvSlot>(spec, 50, RopeVariant{}, TablesFor(spec));
  slot->BeginWrite(0, 1);
  slot->Values(0, 0)[3] = 0x3c00;
  const KvSegment published = slot->Export(0, 1);
  slot.reset();
  std::vector<float> got(10);
  ReadHead(published.layers[0], published.layers[0].v, 0, 0, got);
  EXPECT_EQ(got[3], 1.f);
}

TEST(RopeTable, GrowsWithoutMoving) {
  RopeTable table(RopeSpec{10000, 8, {}}, {}, 1000);
  table.Fill(1);
  const float* start = table.Cos(0);
  for (int positions : {2, 17, 500, 1000}) {
    table.Fill(positions);
    EXPECT_EQ(table.Cos(0), start);
    const double angle = (positions - 1) * std::pow(10000.0, -0.25);
    EXPECT_EQ(table.Cos(positions - 1)[1], float(std::cos(angle)));
    EXPECT_EQ(table.Sin(positions - 1)[1], float(std::sin(angle)));
  }
}

}  // namespace
}  // namespace pd::cpu
