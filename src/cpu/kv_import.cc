// Copies a segment of any layout into a slot.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cpu/kv_cache.h"

namespace pd::cpu {
namespace {

constexpr int kTokens = 16;  // gathered at a time: for 2-byte elements along tokens, half a cache line each

// Source and destination of some tokens of a head: rows of `dim` halves.
struct HeadCopy {
  const std::byte* from;  // element (first token, dim 0)
  DType dtype;
  int64_t token_stride, dim_stride;
  int first, count, dim;
  uint16_t* to;             // row of the first token
  const RopeTable* rotate;  // for raw keys; else nullptr
};

// `count` tokens as floats [count][dim].
void Gather(const HeadCopy& c, int token, int count, float* out) {
  const auto size = int64_t(RowBytes(c.dtype, 1));
  const std::byte* from = c.from + token * c.token_stride * size;
  const auto dim = size_t(c.dim);
  if (c.dim_stride == 1) {
    for (int t = 0; t < count; ++t)
      DequantizeRow(c.dtype, from + t * c.token_stride * size, {out + size_t(t) * dim, dim});
    return;
  }
  float column[kTokens];
  for (int d = 0; d < c.dim; ++d) {
    const std::byte* start = from + d * c.dim_stride * size;
    if (c.token_stride == 1) {
      DequantizeRow(c.dtype, start, {column, size_t(count)});
    } else {
      for (int t = 0; t < count; ++t)
        DequantizeRow(c.dtype, start + t * c.token_stride * size, {column + t, 1});
    }
    for (int t = 0; t < count; ++t) out[size_t(t) * dim + size_t(d)] = column[t];
  }
}

void CopyHead(const HeadCopy& c, const Kernels& kernels, float* scratch) {
  const auto row_bytes = size_t(c.dim) * sizeof(uint16_t);
  if (!c.rotate && c.dtype == DType::kF16 && c.dim_stride == 1) {  // already in the cache's form
    if (c.token_stride == c.dim) {
      std::memcpy(c.to, c.from, size_t(c.count) * row_bytes);
      return;
    }
    for (int t = 0; t < c.count; ++t)
      std::memcpy(c.to + t * c.dim, c.from + t * c.token_stride * 2, row_bytes);
    return;
  }
  for (int from = 0; from < c.count; from += kTokens) {
    const int count = std::min(kTokens, c.count - from);
    Gather(c, from, count, scratch);
    for (int t = 0; t < count && c.rotate; ++t) {
      const int position = c.first + from + t;
      kernels.rope(scratch + t * c.dim, c.rotate->Cos(position), c.rotate->Sin(position), c.rotate->half());
    }
    kernels.to_half(scratch, int64_t(count) * c.dim, c.to + int64_t(from) * c.dim);
  }
}

}  // namespace

void KvSlot::Import(const KvSegment& segment, const Kernels& kernels, ThreadPool& pool) {
  int heads = 0, dim = 0;  // of all layers; the widest
  for (const LayerSpec& layer : spec_.layers) {
    heads += AttentionOf(layer).kv_heads;
    dim = std::max(dim, AttentionOf(layer).head_dim);
  }
  const int first = segment.first, end = first + segment.count;
  std::vector<HeadCopy> copies;  // each of tokens of one block, in memory order
  copies.reserve(size_t(heads) * 2 * size_t((end - 1) / block_tokens_ - first / block_tokens_ + 1));
  for (int token = first, count = 0; token < end; token += count) {
    count = std::min(end, BlockEnd(token)) - token;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const KvLayerView& view = segment.kv(i);
      const AttentionSpec& a = AttentionOf(spec_.layers[i]);
      const auto size = int64_t(RowBytes(view.dtype, 1));
      const RopeTable* rotate = segment.key_form == KeyForm::kRaw && a.rope ? &TableOf(*a.rope) : nullptr;
      for (int h = 0; h < a.kv_heads; ++h) {
        const int64_t at = (h * view.head_stride + (token - first) * view.token_stride) * size;
        HeadCopy copy{view.k + at, view.dtype, view.token_stride,      view.dim_stride, token,
                      count,       a.head_dim, Keys(int(i), h, token), rotate};
        copies.push_back(copy);
        copy.from = view.v + at, copy.to = Values(int(i), h, token), copy.rotate = nullptr;
        copies.push_back(copy);
      }
    }
  }
  const size_t scratch_floats = size_t(kTokens) * size_t(dim);
  std::vector<float> scratch(scratch_floats * size_t(pool.threads()));
  pool.Run([&](int thread) {
    const size_t threads = size_t(pool.threads()), part = size_t(thread);
    for (size_t i = copies.size() * part / threads; i < copies.size() * (part + 1) / threads; ++i)
      CopyHead(copies[i], kernels, scratch.data() + scratch_floats * size_t(thread));
  });
}

}  // namespace pd::cpu
