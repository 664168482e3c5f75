// Keys and values on their way from one device to another: the producer describes, the consumer copies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "model/spec.h"

namespace pd {

// Who may read whose keys and values.
struct KvIdentity {
  uint64_t spec = 0;     // SpecDigest
  uint64_t weights = 0;  // WeightsDigest: a base model's cache never serves a fine-tune
  RopeVariant rope;
  bool operator==(const KvIdentity&) const = default;
};

enum class KeyForm : uint8_t {
  kRotated,  // ready to be attended
  kRaw,      // after qk-norm, before rotation: the importer rotates, exactly once
};

// One layer's tokens [first, first + count), K heads of D values each. Element (head h, token t, dim d) of
// `k` lies h * head_stride + (t - first) * token_stride + d * dim_stride elements after k; v likewise.
// Strides are in elements.
struct KvLayerView {
  int first = 0, count = 0;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  DType dtype = DType::kF16;  // kF32, kF16 or kBF16
  int64_t head_stride = 0, token_stride = 0, dim_stride = 1;
  bool operator==(const KvLayerView&) const = default;
};

// Positions are absolute; values are as projected. Immutable once published: `owner` keeps the memory alive
// and unchanged for as long as any copy of the segment exists. Any thread may read.
struct KvSegment {
  KvIdentity id;
  KeyForm key_form = KeyForm::kRotated;
  std::vector<KvLayerView> layers;  // one for each layer of the spec
  std::shared_ptr<const void> owner;

  int first() const { return layers.empty() ? 0 : layers.front().first; }
  int count() const { return layers.empty() ? 0 : layers.front().count; }
  size_t bytes(const ModelSpec& spec) const;  // of keys and values, without padding
};

// Throws kBadRequest unless the segment is of `id`, has every layer of the spec with the same token range, a
// plain dtype, and strides that cannot reach the same element twice.
void CheckSegment(const KvSegment& segment, const ModelSpec& spec, const KvIdentity& id);

// Values of one head and token: out has head_dim entries. `base` is view.k or view.v, `token` is absolute.
void ReadHead(const KvLayerView& view, const std::byte* base, int head, int token, std::span<float> out);

// Views of tokens [first, first + count) of `segment`, as far as each layer has them.
KvSegment Slice(const KvSegment& segment, int first, int count);

// The compact layout: [K, count, D] a layer, keys then values, layer after layer. Layers may cover different
// tokens. `layers` need first, count and dtype; CompactBytes is what they take.
size_t CompactBytes(std::span<const KvLayerView> layers, const ModelSpec& spec);
void PlaceCompact(std::span<KvLayerView> layers, const ModelSpec& spec, const std::byte* memory);

// Gives the segment compact memory of its own, from a multiple of 64 bytes on and not yet filled, through
// PlaceCompact. Where it begins.
std::byte* AllocateCompact(KvSegment& segment, const ModelSpec& spec);

// What is in the segment, compact in memory that holds nothing else: the segment itself if it lies so, or a
// copy.
KvSegment Compact(const KvSegment& segment, const ModelSpec& spec);

// The packed layout of one-shot prefill programs: k and v of shape (1, layers * tokens, kv_heads, head_dim),
// layer after layer. A segment that views it; every layer of the spec must have the same kv_heads and
// head_dim (kBadRequest).
KvSegment ViewPacked(const ModelSpec& spec, const KvIdentity& id, KeyForm key_form, const std::byte* k,
                     const std::byte* v, DType dtype, int first, int count,
                     std::shared_ptr<const void> owner);

}  // namespace pd
