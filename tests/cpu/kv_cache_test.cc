// Slots: what Import makes of every layout a segment may have, and what Export promises.
#include "cpu/kv_cache.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <random>

#include "tests/tiny_model.h"

namespace pd::cpu {
namespace {

// Two layers of different heads, one of them with half of its dimensions rotated.
ModelSpec TwoLayers() {
  ModelSpec spec = test::MixedSpec();
  LayerSpec a = spec.layers[0], b = spec.layers[1];
  AttentionOf(a).kv_heads = 3, AttentionOf(a).heads = 3, AttentionOf(a).head_dim = 10;
  AttentionOf(a).rope = RopeSpec{10000, 6, {}};
  AttentionOf(b).kv_heads = 1, AttentionOf(b).head_dim = 33;
  AttentionOf(b).rope.reset();
  spec.layers = {a, b};
  return spec;
}

enum class Layout { kTokens, kHeads, kDims, kSparse };  // what is contiguous; kSparse: nothing

// Random keys and values of tokens [first, first + count) as plain floats, and a segment that holds them.
struct Source {
  Source(const ModelSpec& spec, int first, int count, DType dtype, Layout layout, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    segment.first = first, segment.count = count;
    for (const LayerSpec& layer : spec.layers) {
      const AttentionSpec& a = AttentionOf(layer);
      KvLayerView view{.dtype = dtype};
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
  return {std::make_shared<RopeTable>(*AttentionOf(spec.layers[0]).rope, RopeVariant{}, spec.max_context)};
}

// A row of the slot as floats.
std::vector<float> Read(const uint16_t* row, int dim) {
  std::vector<float> values;
  for (int i = 0; i < dim; ++i) values.push_back(ToFloat(F16{row[i]}));
  return values;
}

// Of a slot smaller than a block, and over the ends of blocks of 128.
struct Range {
  int capacity, first, count;
};
constexpr Range kRanges[] = {{64, 7, 1},    {64, 7, 15},     {64, 7, 16},    {64, 7, 57},
                             {300, 0, 128}, {300, 127, 130}, {300, 120, 20}, {300, 128, 1}};

TEST(KvSlot, ImportsEveryLayout) {
  const ModelSpec spec = TwoLayers();
  ThreadPool pool(2);
  for (Level level : kAllLevels)
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
      for (Layout layout : {Layout::kTokens, Layout::kHeads, Layout::kDims, Layout::kSparse})
        for (KeyForm form : {KeyForm::kRotated, KeyForm::kRaw})
          for (const auto& [capacity, first, count] : kRanges) {
            const Kernels* kernels = FindKernels(level);
            if (!kernels) continue;
            Source source(spec, first, count, dtype, layout, unsigned(count));
            source.segment.key_form = form;
            KvSlot slot(spec, capacity, TablesFor(spec));
            slot.BeginWrite(first + count);
            slot.Import(source.segment, *kernels, pool);
            for (size_t i = 0; i < spec.layers.size(); ++i) {
              const AttentionSpec& a = AttentionOf(spec.layers[i]);
              const KvLayerView& view = source.segment.kv(i);
              std::vector<float> want(size_t(a.head_dim));
              const auto rounded = [&] {
                for (float& f : want) f = ToFloat(ToF16(f));
                return want;
              };
              for (int h = 0; h < a.kv_heads; ++h)
                for (int t = first; t < first + count; ++t) {
                  ReadHead(view, view.v, h, t - first, want);
                  ASSERT_EQ(Read(slot.Values(int(i), h, t), a.head_dim), rounded());
                  ReadHead(view, view.k, h, t - first, want);
                  if (form == KeyForm::kRaw && a.rope) {
                    const RopeTable& table = slot.TableOf(*a.rope);
                    FindKernels(Level::kScalar)->rope(want.data(), table.Cos(t), table.Sin(t), table.half());
                  }
                  ASSERT_EQ(Read(slot.Keys(int(i), h, t), a.head_dim), rounded());
                }
            }
          }
}

TEST(KvSlot, ExportsWhatItHolds) {
  const ModelSpec spec = TwoLayers();
  ThreadPool pool(1);
  for (const auto& [capacity, first, count] : kRanges) {
    KvSlot slot(spec, capacity, TablesFor(spec));
    Source source(spec, 0, first + count, DType::kF16, Layout::kHeads, 1);
    slot.BeginWrite(first + count);
    slot.Import(source.segment, *FindKernels(Level::kScalar), pool);
    const KvSegment out = slot.Export(first, count);
    CheckSegment(out, spec, {});
    EXPECT_EQ(Compact(out, spec).owner, out.owner);  // nothing to copy
    EXPECT_EQ(out.first, first);
    EXPECT_EQ(out.count, count);
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const AttentionSpec& a = AttentionOf(spec.layers[i]);
      const KvLayerView &view = out.kv(i), &from = source.segment.kv(i);
      std::vector<float> got(size_t(a.head_dim)), want = got;
      for (int h = 0; h < a.kv_heads; ++h)
        for (int t = first; t < first + count; ++t)
          for (const auto& [mine, its] : {std::pair(view.k, from.k), std::pair(view.v, from.v)}) {
            ReadHead(view, mine, h, t - first, got);
            ReadHead(from, its, h, t, want);
            ASSERT_EQ(got, want);
          }
    }
  }
}

// A long context costs address space until its tokens come.
TEST(KvSlot, MemoryFollowsTokens) {
  LayerSpec layer = test::MixedSpec().layers[0];
  AttentionOf(layer).kv_heads = 8, AttentionOf(layer).head_dim = 64;
  ModelSpec spec = test::MixedSpec();
  spec.layers.assign(8, layer);                 // 2 MB a block of 128 tokens
  KvSlot slot(spec, 1 << 22, TablesFor(spec));  // 64 GB
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    size_t pages = 0;
    status >> pages >> pages;
    return pages * size_t(sysconf(_SC_PAGESIZE));
  };
  const size_t before = resident();
  if (before == 0) GTEST_SKIP() << "no /proc/self/statm";
  slot.BeginWrite(300);
  for (int i = 0; i < 8; ++i)
    for (int t = 0; t < 300; ++t) slot.Keys(i, 0, t)[0] = slot.Values(i, 7, t)[63] = 1;
  EXPECT_LE(resident() - before, size_t(10) << 20);  // three blocks, in pages of up to 2 MB, and tables
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
