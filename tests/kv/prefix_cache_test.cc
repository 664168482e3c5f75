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
  AttentionSpec attention;
  attention.heads = 4, attention.kv_heads = 2, attention.head_dim = 4;
  spec.layers.assign(3, PreNormLayer({}, attention, {.hidden = 8}));
  AttentionOf(spec.layers[1]).window = WindowSpec{5};
  AttentionOf(spec.layers[2]).window = WindowSpec{12};
  return spec;
}
const ModelSpec kSpec = CacheSpec();

// The key of a token is a function of all tokens up to it, as in a model.
float ValueOf(std::span<const TokenId> tokens, int position, size_t layer, int head, int dim, bool value) {
  uint64_t hash = 1469598103934665603u + layer * 31 + size_t(head) * 7 + size_t(dim) * 3 + value;
  for (int i = 0; i <= position; ++i) hash = (hash ^ uint64_t(tokens[size_t(i)])) * 1099511628211u;
  return float(hash >> 40);
}

// Tokens [first, tokens.size()).
KvSegment SegmentOf(std::span<const TokenId> tokens, int first) {
  const int end = int(tokens.size());
  KvSegment segment{.first = first, .count = end - first};
  segment.layers.assign(kSpec.layers.size(), KvLayerView{.dtype = DType::kF32});
  auto memory = std::make_shared<std::vector<float>>(CompactBytes(segment, kSpec) / sizeof(float));
  PlaceCompact(segment, kSpec, reinterpret_cast<const std::byte*>(memory->data()));
  float* out = memory->data();
  for (size_t i = 0; i < kSpec.layers.size(); ++i)
    for (bool value : {false, true})
      for (int h = 0; h < 2; ++h)
        for (int t = first; t < end; ++t)
          for (int d = 0; d < 4; ++d) *out++ = ValueOf(tokens, t, i, h, d, value);
  segment.owner = std::move(memory);
  return segment;
}

// Complete, contiguous and right.
void CheckHit(const PrefixCache::Hit& hit, std::span<const TokenId> tokens) {
  int end = 0;
  for (const KvSegment& segment : hit.segments) {
    EXPECT_NO_THROW(CheckSegment(segment, kSpec, segment.id));
    EXPECT_EQ(segment.first, end);
    EXPECT_GT(segment.count, 0);
    end += segment.count;
    for (size_t i = 0; i < kSpec.layers.size(); ++i)
      for (int t = segment.first; t < end; ++t)
        for (int h = 0; h < 2; ++h)
          for (bool value : {false, true}) {
            const KvLayerView& view = segment.kv(i);
            std::array<float, 4> out;
            ReadHead(view, value ? view.v : view.k, h, t - segment.first, out);
            for (int d = 0; d < 4; ++d) ASSERT_EQ(out[size_t(d)], ValueOf(tokens, t, i, h, d, value));
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
  EXPECT_EQ(cache.Find(text, {{7}}).tokens, 0) << "another RoPE variant";
  EXPECT_EQ(cache.Find(text, {{}, 7}).tokens, 0) << "another adapter";
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
      KvLayerView& view = strided.kv(i);
      (value ? view.v : view.k) = reinterpret_cast<const std::byte*>(at);
      view.head_stride = 4 * 9, view.token_stride = 1, view.dim_stride = 9;
      for (int h = 0; h < 2; ++h)
        for (int d = 0; d < 4; ++d)
          for (int t = 0; t < 9; ++t) *at++ = ValueOf(text, t, i, h, d, value);
    }
  strided.owner = memory;
  for (const KvSegment& segment : {whole, strided}) {
    const KvSegment copy = Compact(Slice(segment, 2, 5), kSpec);
    EXPECT_EQ(copy.first, 2);
    EXPECT_EQ(copy.count, 5);
    EXPECT_EQ(CompactBytes(copy, kSpec), 5u * 3 * 2 * 8 * sizeof(float));
    for (size_t i = 0; i < kSpec.layers.size(); ++i)
      for (int t = 2; t < 7; ++t) {
        std::array<float, 4> out;
        ReadHead(copy.kv(i), copy.kv(i).v, 1, t - 2, out);
        for (int d = 0; d < 4; ++d) EXPECT_EQ(out[size_t(d)], ValueOf(text, t, i, 1, d, true));
      }
  }
}

}  // namespace
}  // namespace pd::test
