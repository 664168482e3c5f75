#include "cpu/attention.h"

#include <algorithm>
#include <atomic>

namespace pd::cpu {
namespace {

// Query rows times heads of a unit: enough that packing a block's keys and values is a few percent of its
// work.
constexpr int kQueries = 96;

int RowsPerUnit(const AttentionSpec& a) { return std::max(1, kQueries * a.kv_heads / a.heads); }
int QueriesPerUnit(const AttentionSpec& a) { return RowsPerUnit(a) * (a.heads / a.kv_heads); }
int PaddedDim(const AttentionSpec& a) { return (a.head_dim + kTile - 1) / kTile * kTile; }

// Keys that a row sees: [first, position].
int FirstKey(const AttentionSpec& a, int position) {
  return a.window ? std::max(0, position - a.window->size + 1) : 0;
}

int BlocksOf(int tokens) { return (tokens + kKeyBlock - 1) / kKeyBlock; }

// Prefetches memory piece by piece between other work: one head's keys of a block are too short a run for the
// processor's own prefetching.
class Ahead {
 public:
  explicit Ahead(std::span<const uint16_t> halves) : at_(halves.data()), end_(at_ + halves.size()) {}
  void Fetch(int64_t halves) {
    constexpr int64_t kLine = 64 / sizeof(uint16_t);
    for (const uint16_t* stop = at_ + std::min<int64_t>(halves, end_ - at_); at_ < stop; at_ += kLine)
      __builtin_prefetch(at_, 0, 2);
  }

 private:
  const uint16_t *at_, *end_;
};

TileJob FloatTile(const float* w, int k, const float* x, int64_t x_stride, int rows, float* out,
                  int64_t out_stride) {
  return {reinterpret_cast<const std::byte*>(w),
          k,
          reinterpret_cast<const std::byte*>(x),
          x_stride * int64_t(sizeof(float)),
          rows,
          out,
          out_stride,
          nullptr};
}

}  // namespace

Attention::Attention(const Kernels& kernels, ThreadPool& pool, const ModelSpec& spec)
    : kernels_(kernels), pool_(pool), scratch_(size_t(pool.threads())) {
  size_t queries = 0, dim = 0;
  for (const LayerSpec& layer : spec.layers) {
    queries = std::max(queries, size_t(QueriesPerUnit(AttentionOf(layer))));
    dim = std::max(dim, size_t(PaddedDim(AttentionOf(layer))));
  }
  for (Scratch& s : scratch_) {
    for (auto* matrix : {&s.query, &s.out, &s.block_out}) matrix->resize(queries * dim);
    for (auto* matrix : {&s.keys, &s.values}) matrix->resize(kKeyBlock * dim);
    s.scores.resize(queries * kKeyBlock);
    for (auto* column : {&s.max, &s.sum, &s.block_max, &s.block_sum, &s.keep, &s.weight})
      column->resize(queries);
  }
}

void Attention::Attend(int layer, const AttentionSpec& a, Matrix& q, std::span<const RowRun> runs) {
  MakeUnits(a, runs);
  std::atomic<size_t> taken = 0;
  const auto work = [&](int part) {
    Scratch& s = scratch_[size_t(part)];
    if (!split_) {  // units differ in size: a free thread takes the next one
      for (size_t i = taken++; i < units_.size(); i = taken++) Compute(units_[i], nullptr, layer, a, q, s);
      return;
    }
    const size_t parts = size_t(pool_.threads()), end = units_.size() * (size_t(part) + 1) / parts;
    for (size_t i = units_.size() * size_t(part) / parts; i < end; ++i)
      Compute(units_[i], i + 1 < end ? &units_[i + 1] : nullptr, layer, a, q, s);
  };
  pool_.Run(work);
  if (split_) JoinPartials(a, q);
}

// A unit has some rows and one KV head, and fewer rows where that is needed to keep all threads busy. Where
// even single rows give too few units, there is one unit for each block of keys.
void Attention::MakeUnits(const AttentionSpec& a, std::span<const RowRun> runs) {
  const size_t wanted = 4 * size_t(pool_.threads()), heads = size_t(a.kv_heads);
  size_t rows = 0, most_blocks = 0, whole = 0;
  for (const RowRun& run : runs) {
    rows += size_t(run.count);
    most_blocks = std::max(most_blocks, size_t(BlocksOf(run.slot->capacity())));
  }
  const int most = int(std::clamp<size_t>(rows * heads / wanted, 1, size_t(RowsPerUnit(a))));
  for (const RowRun& run : runs) whole += size_t((run.count + most - 1) / most) * heads;

  split_ = whole < wanted && pool_.threads() > 1 && most_blocks > 1;
  const size_t partial =
      size_t(a.heads / a.kv_heads) * size_t(PaddedDim(a) + 2);  // floats of a row and block
  if (split_) {  // for the slots' full capacity, so that a growing sequence allocates nothing
    units_.reserve(whole * most_blocks);
    if (const size_t bytes = whole * most_blocks * partial * sizeof(float); partials_.bytes() < bytes)
      partials_ = Pages(bytes, Pages::Size::kSmall, "attention");
  } else {
    units_.reserve(whole);
  }
  units_.clear();
  for (const RowRun& run : runs)
    for (int end = run.count; end > 0; end -= most)  // last rows first: they see the most keys
      for (int head = 0; head < a.kv_heads; ++head) {
        const int begin = std::max(0, end - most);
        Unit unit{&run,
                  run.row + begin,
                  end - begin,
                  head,
                  FirstKey(a, run.position + begin) / kKeyBlock,
                  BlocksOf(run.position + end),
                  nullptr};
        if (!split_) units_.push_back(unit);
        for (const int last = unit.block_end; split_ && unit.block_begin < last; ++unit.block_begin) {
          unit.block_end = unit.block_begin + 1;
          unit.partial = reinterpret_cast<float*>(partials_.data()) + units_.size() * partial;
          units_.push_back(unit);
        }
      }
}

// The keys of a block that any row of the unit sees: [from, from + count) within the block, starting at a
// whole tile.
struct Attention::Range {
  Range(const Unit& unit, const AttentionSpec& a, int block)
      : start(block * kKeyBlock),
        from(std::max(FirstKey(a, unit.position()) - start, 0) / kTile * kTile),
        count(std::min(unit.position() + unit.count - start, kKeyBlock) - from) {}
  // Cache rows of one head's keys or values.
  std::span<const uint16_t> Keys(const Unit& unit, int layer, int dim) const {
    return {unit.run->slot->Keys(layer, unit.head, start + from), size_t(count) * size_t(dim)};
  }
  std::span<const uint16_t> Values(const Unit& unit, int layer, int dim) const {
    return {unit.run->slot->Values(layer, unit.head, start + from), size_t(count) * size_t(dim)};
  }
  int start, from, count;
};

void Attention::Compute(const Unit& unit, const Unit* next, int layer, const AttentionSpec& a, Matrix& q,
                        Scratch& s) const {
  const int group = a.heads / a.kv_heads, queries = unit.count * group, dim = a.head_dim,
            padded = PaddedDim(a);
  for (int i = 0; i < queries; ++i)
    kernels_.scale(q.Row(unit.row + i / group) + int64_t(unit.head * group + i % group) * dim, a.scale, dim,
                   s.query.data() + i * dim);

  float *out = s.out.data(), *max = s.max.data(), *sum = s.sum.data();
  if (unit.partial) max = unit.partial, sum = max + queries, out = sum + queries;
  std::fill_n(max, queries, kNoScore);
  std::fill_n(sum, queries, 0.f);
  std::fill_n(out, queries * padded, 0.f);

  const auto keys = [&](const Unit& u, int block) { return Range(u, a, block).Keys(u, layer, dim); };
  for (int block = unit.block_begin; block < unit.block_end; ++block) {
    std::span<const uint16_t> next_keys;
    if (block + 1 < unit.block_end)
      next_keys = keys(unit, block + 1);
    else if (next)
      next_keys = keys(*next, next->block_begin);
    Block(unit, block, next_keys, layer, a, s);
    kernels_.join(queries, max, sum, s.block_max.data(), s.block_sum.data(), s.keep.data(), s.weight.data());
    for (int i = 0; i < queries; ++i)
      kernels_.blend(out + i * padded, s.keep[size_t(i)], s.block_out.data() + i * padded,
                     s.weight[size_t(i)], dim);
  }
  if (!unit.partial) Finish(unit, a, sum, out, q);
}

// Maximum, sum and weighted values of one block, for all queries of the unit.
void Attention::Block(const Unit& unit, int block, std::span<const uint16_t> next_keys, int layer,
                      const AttentionSpec& a, Scratch& s) const {
  const int group = a.heads / a.kv_heads, queries = unit.count * group, dim = a.head_dim,
            padded = PaddedDim(a);
  const Range range(unit, a, block);
  const auto keys = range.Keys(unit, layer, dim), values = range.Values(unit, layer, dim);
  const int from = range.from;

  Ahead these_values(values), those_keys(next_keys);
  const bool few = queries <= kFewQueries;
  const int padded_count = (range.count + kTile - 1) / kTile * kTile;
  if (few) {
    these_values.Fetch(padded_count * dim);
    kernels_.score_few(keys.data(), range.count, dim, s.query.data(), queries, s.scores.data() + from);
  } else {
    kernels_.pack_keys(keys.data(), range.count, dim, s.keys.data());
    for (int t = 0; t < padded_count; t += kTile)
      kernels_.f32(FloatTile(s.keys.data() + t * dim, dim, s.query.data(), dim, queries,
                             s.scores.data() + from + t, kKeyBlock));
  }
  for (int i = 0; i < queries; ++i) {
    const int last = unit.position() + i / group;
    SoftmaxJob job{.scores = s.scores.data() + i * kKeyBlock,
                   .from = from,
                   .to = from + padded_count,
                   .begin = std::max(FirstKey(a, last) - range.start, from),
                   .end = std::min(last + 1 - range.start, from + range.count),
                   .cap = a.soft_cap.value_or(0.f)};
    kernels_.softmax(job);
    s.block_max[size_t(i)] = job.max, s.block_sum[size_t(i)] = job.sum;
  }
  if (few) {
    those_keys.Fetch(int64_t(kKeyBlock) * dim);
    kernels_.weigh_few(values.data(), range.count, dim, s.scores.data() + from, queries, s.block_out.data(),
                       padded);
    return;
  }
  kernels_.pack_values(values.data(), range.count, dim, s.values.data());
  for (int d = 0; d < padded; d += kTile)
    kernels_.f32(FloatTile(s.values.data() + d * kKeyBlock, range.count, s.scores.data() + from, kKeyBlock,
                           queries, s.block_out.data() + d, padded));
}

// Joins the blocks of the same rows and head in the order in which one thread would compute them.
void Attention::JoinPartials(const AttentionSpec& a, Matrix& q) {
  const int dim = a.head_dim, padded = PaddedDim(a);
  Scratch& s = scratch_[0];
  for (size_t first = 0, end; first < units_.size(); first = end) {
    const Unit& unit = units_[first];
    const int queries = unit.count * (a.heads / a.kv_heads);
    float *max = unit.partial, *sum = max + queries, *out = sum + queries;
    for (end = first + 1; end < units_.size(); ++end) {
      const Unit& next = units_[end];
      if (next.row != unit.row || next.head != unit.head) break;
      const float *block_max = next.partial, *block_sum = block_max + queries,
                  *block_out = block_sum + queries;
      kernels_.join(queries, max, sum, block_max, block_sum, s.keep.data(), s.weight.data());
      for (int i = 0; i < queries; ++i)
        kernels_.blend(out + i * padded, s.keep[size_t(i)], block_out + i * padded, s.weight[size_t(i)], dim);
    }
    Finish(unit, a, sum, out, q);
  }
}

void Attention::Finish(const Unit& unit, const AttentionSpec& a, const float* sum, const float* out,
                       Matrix& q) const {
  const int group = a.heads / a.kv_heads, dim = a.head_dim;
  for (int i = 0; i < unit.count * group; ++i)
    kernels_.scale(out + i * PaddedDim(a), 1.f / sum[i], dim,
                   q.Row(unit.row + i / group) + int64_t(unit.head * group + i % group) * dim);
}

}  // namespace pd::cpu
