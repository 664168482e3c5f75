#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/tiny_model.h"

namespace pd::test {
namespace {

// Three layers: one without a window, two with.
ModelSpec CacheSpec() {
  ModelSpec spec;
  spec.width = 8, spec.vocab = 100, spec.max_context = 1000;
  spec.layers.resize(3);
  for (LayerSpec& layer : spec.layers) {
    layer.attn.heads = 4, layer.attn.kv_heads = 2, layer.attn.head_dim = 4;
    layer.mlp.hidden = 8;
  }
  spec.layers[1].attn.window = 5;
  spec.layers[2].attn.window = 12;
  return spec;
}
const ModelSpec kSpec = CacheSpec();

// The key of a token is a function of all tokens up to it, as in a model.
float ValueOf(std::span<const TokenId> tokens, int position, size_t layer, int head, int dim, bool value) {
  uint64_t hash = 1469598103934665603u + layer * 31 + size_t(head) * 7 + size_t(dim) * 3 + value;
  for (int i = 0; i <= position; ++i) hash = (hash ^ uint64_t(tokens[size_t(i)])) * 1099511628211u;
  return float(hash >> 40);
}

// Tokens [first, tokens.size()); windowed layers may begin later.
KvSegment SegmentOf(std::span<const TokenId> tokens, int first, int windowed_from = 0,
                    RopeVariant rope = {}) {
  const int end = int(tokens.size());
  KvSegment segment;
  segment.id.rope = rope;
  std::vector<KvLayerView> layers;
  for (size_t i = 0; i < kSpec.layers.size(); ++i) {
    const int from = kSpec.layers[i].attn.window ? std::clamp(windowed_from, first, end) : first;
    KvLayerView view;
    view.first = from, view.count = end - from, view.dtype = DType::kF32;
    layers.push_back(view);
  }
  auto memory = std::make_shared<std::vector<float>>(CompactBytes(layers, kSpec) / sizeof(float));
  PlaceCompact(layers, kSpec, reinterpret_cast<const std::byte*>(memory->data()));
  for (size_t i = 0; i < layers.size(); ++i)
    for (bool value : {false, true}) {
      float* out = const_cast<float*>(reinterpret_cast<const float*>(value ? layers[i].v : layers[i].k));
      for (int h = 0; h < 2; ++h)
        for (int t = layers[i].first; t < end; ++t)
          for (int d = 0; d < 4; ++d) *out++ = ValueOf(tokens, t, i, h, d, value);
    }
  segment.layers = std::move(layers);
  segment.owner = std::move(memory);
  return segment;
}

// Complete, contiguous, and right wherever a text that continues can see it.
void CheckHit(const PrefixCache::Hit& hit, std::span<const TokenId> tokens) {
  int end = 0;
  for (const KvSegment& segment : hit.segments) {
    EXPECT_NO_THROW(CheckSegment(segment, kSpec, segment.id));
    EXPECT_EQ(segment.first(), end);
    EXPECT_GT(segment.count(), 0);
    end += segment.count();
    for (size_t i = 0; i < kSpec.layers.size(); ++i) {
      const auto& window = kSpec.layers[i].attn.window;
      const int seen_from = window ? hit.tokens - *window + 1 : 0;
      for (int t = std::max(seen_from, segment.first()); t < end; ++t)
        for (int h = 0; h < 2; ++h)
          for (bool value : {false, true}) {
            const KvLayerView& view = segment.layers[i];
            std::array<float, 4> out;
            ReadHead(view, value ? view.v : view.k, h, t, out);
            for (int d = 0; d < 4; ++d) ASSERT_EQ(out[size_t(d)], ValueOf(tokens, t, i, h, d, value));
          }
    }
  }
  EXPECT_EQ(end, hit.tokens);
}

std::vector<TokenId> Range(int count, TokenId from = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) tokens[size_t(i)] = from + i;
  return tokens;
}

void Insert(PrefixCache& cache, std::span<const TokenId> tokens, int first = 0) {
  cache.Insert(tokens, first, SegmentOf(tokens, first));
}

TEST(PrefixCache, FindsPrefixesOfAnyLength) {
  PrefixCache cache(kSpec, 1 << 20, false);
  const auto text = Range(50);
  Insert(cache, std::span(text).first(20));
  Insert(cache, text, 20);
  for (int length = 0; length <= 50; ++length) {
    auto question = Range(length);
    EXPECT_EQ(cache.Find(question, {}).tokens, length);
    question.insert(question.end(), {99, 98});
    const auto hit = cache.Find(question, {});
    EXPECT_EQ(hit.tokens, length);
    CheckHit(hit, question);
  }
  EXPECT_EQ(cache.Find(Range(10, 1), {}).tokens, 0);
  EXPECT_EQ(cache.Find(text, {7}).tokens, 0) << "another RoPE variant";
}

TEST(PrefixCache, KeepsWhatTextsShareOnce) {
  PrefixCache cache(kSpec, 1 << 20, false);
  auto a = Range(30), b = a;
  b[18] = 77;
  Insert(cache, a);
  const size_t one = cache.bytes();
  EXPECT_EQ(one, 30u * 3 * 2 * 8 * sizeof(float));
  Insert(cache, b);
  EXPECT_EQ(cache.bytes(), one + 12u * 3 * 2 * 8 * sizeof(float));
  Insert(cache, a);
  Insert(cache, std::span(b).first(25));
  EXPECT_EQ(cache.bytes(), one + 12u * 3 * 2 * 8 * sizeof(float)) << "all of it was known";
  for (const auto& text : {a, b}) CheckHit(cache.Find(text, {}), text);
  EXPECT_EQ(cache.Find(b, {}).tokens, 30);
}

TEST(PrefixCache, KeepsNothingThatHangsInTheAir) {
  PrefixCache cache(kSpec, 1 << 20, false);
  Insert(cache, Range(30), 10);
  EXPECT_EQ(cache.bytes(), 0u);
  Insert(cache, Range(10));
  Insert(cache, Range(40), 20);
  EXPECT_EQ(cache.Find(Range(40), {}).tokens, 10);
}

TEST(PrefixCache, ForgetsTheLeastRecentlyUsed) {
  const size_t run = 10u * 3 * 2 * 8 * sizeof(float);
  PrefixCache cache(kSpec, 3 * run, false);
  for (TokenId start : {0, 20, 40}) Insert(cache, Range(10, start));
  cache.Find(Range(10, 0), {});
  Insert(cache, Range(10, 60));
  EXPECT_EQ(cache.Find(Range(10, 20), {}).tokens, 0);
  for (TokenId start : {0, 40, 60}) EXPECT_EQ(cache.Find(Range(10, start), {}).tokens, 10);
  // Leaves go first: a text's beginning is of use without its end, and not the other way round.
  PrefixCache chain(kSpec, 2 * run, false);
  Insert(chain, Range(10));
  Insert(chain, Range(20), 10);
  Insert(chain, Range(10, 50));
  EXPECT_EQ(chain.Find(Range(20), {}).tokens, 10);
  EXPECT_LE(chain.bytes(), 2 * run);
  Insert(chain, Range(31));
  EXPECT_LE(chain.bytes(), 2 * run) << "larger than the cache";
}

TEST(PrefixCache, SegmentsOutliveTheCache) {
  auto text = Range(10);
  PrefixCache::Hit hit;
  {
    PrefixCache cache(kSpec, 1 << 20, false);
    Insert(cache, text);
    hit = cache.Find(text, {});
  }
  CheckHit(hit, text);
}

// A ring has kept the last tokens of windowed layers only.
TEST(PrefixCache, MovesBackToWhereTheWindowExists) {
  PrefixCache cache(kSpec, 1 << 20, false);
  const auto text = Range(60);
  Insert(cache, std::span(text).first(20));
  cache.Insert(text, 20, SegmentOf(text, 20, 45));
  // Windows of 5 and 12: a text that continues at 56 or later sees tokens from 45 on, one at 20 those before.
  for (int length = 0; length <= 60; ++length) {
    const auto hit = cache.Find(Range(length), {});
    EXPECT_EQ(hit.tokens, length <= 20 || length >= 56 ? length : 20) << length;
    CheckHit(hit, text);
  }
  // The same when a branch cuts the run.
  auto other = text;
  other[50] = 99;
  Insert(cache, other, 20);
  EXPECT_EQ(cache.Find(text, {}).tokens, 60);
  EXPECT_EQ(cache.Find(std::span(text).first(50), {}).tokens, 20);
}

// Against a list of all texts that were inserted, with random cuts and a shrinking memory.
TEST(PrefixCache, AgreesWithASearchThroughAllTexts) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  for (int run = 0; run < 60; ++run) {
    const bool tight = run % 2 == 0;
    PrefixCache cache(kSpec, tight ? 60000 : 1 << 28, false);
    std::set<std::vector<TokenId>> known;  // every prefix that was inserted
    known.insert(std::vector<TokenId>{});
    for (int i = 0; i < 60; ++i) {
      std::vector<TokenId> text(size_t(1 + below(40)));
      for (TokenId& id : text) id = below(3) == 0;
      const auto before = cache.Find(text, {});
      if (!tight) {
        size_t longest = text.size();
        while (!known.contains({text.begin(), text.begin() + ptrdiff_t(longest)})) --longest;
        ASSERT_EQ(before.tokens, int(longest));
      }
      CheckHit(before, text);
      const int first = below(before.tokens + 1);
      cache.Insert(text, first, SegmentOf(text, first));
      ASSERT_LE(cache.bytes(), tight ? size_t(60000) : size_t(1) << 28);
      if (!tight) {
        ASSERT_EQ(cache.Find(text, {}).tokens, int(text.size()));
      }
      for (size_t n = 1; n <= text.size(); ++n) known.insert({text.begin(), text.begin() + ptrdiff_t(n)});
    }
  }
}

TEST(Compact, CopiesAnyLayout) {
  const auto text = Range(9);
  const KvSegment whole = SegmentOf(text, 0);
  // Dimension by dimension, as a program with channels first gives it.
  KvSegment strided = whole;
  auto memory = std::make_shared<std::vector<float>>(9 * 8 * 2 * 3);
  float* at = memory->data();
  for (size_t i = 0; i < kSpec.layers.size(); ++i)
    for (bool value : {false, true}) {
      KvLayerView& view = strided.layers[i];
      (value ? view.v : view.k) = reinterpret_cast<const std::byte*>(at);
      view.head_stride = 4 * 9, view.token_stride = 1, view.dim_stride = 9;
      for (int h = 0; h < 2; ++h)
        for (int d = 0; d < 4; ++d)
          for (int t = 0; t < 9; ++t) *at++ = ValueOf(text, t, i, h, d, value);
    }
  strided.owner = memory;
  for (const KvSegment& segment : {whole, strided}) {
    const KvSegment copy = Compact(Slice(segment, 2, 5), kSpec);
    EXPECT_EQ(copy.first(), 2);
    EXPECT_EQ(copy.count(), 5);
    EXPECT_EQ(copy.bytes(kSpec), CompactBytes(copy.layers, kSpec));
    for (size_t i = 0; i < kSpec.layers.size(); ++i)
      for (int t = 2; t < 7; ++t) {
        std::array<float, 4> out;
        ReadHead(copy.layers[i], copy.layers[i].v, 1, t, out);
        for (int d = 0; d < 4; ++d) EXPECT_EQ(out[size_t(d)], ValueOf(text, t, i, 1, d, true));
      }
  }
}

}  // namespace
}  // namespace pd::test
