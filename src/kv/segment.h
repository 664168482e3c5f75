// A sequence's memory as a value, moved from one device to another: the producer describes it, the consumer
// copies it.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "model/memory.h"
#include "model/spec.h"

namespace pd {

// Fixed for a sequence at admission.
struct Variant {
  RopeVariant rope;
  uint64_t adapter = 0;  // digest of the adapter's weights; 0: none
  auto operator<=>(const Variant&) const = default;
};

// What keys and values depend on, besides the tokens.
struct KvIdentity {
  uint64_t spec = 0;      // SpecDigest
  uint64_t weights = 0;   // WeightsDigest: a base model's cache never serves a fine-tune
  uint64_t computed = 0;  // how: arithmetic, quantisation and form of the producer's weights (ComputedBy)
  Variant variant = {};
  bool operator==(const KvIdentity&) const = default;
};
// The digest for KvIdentity::computed of a producer described by a text such as "mlx metal f16 q4".
uint64_t ComputedBy(std::string_view producer);

enum class KeyForm : uint8_t {
  kRotated,  // ready for attention
  kRaw,      // after qk-norm, before rotation: the importer rotates, exactly once
};

// The segment's tokens in one attention layer: K heads of D values each. Element (head h, t-th token of the
// segment, dim d) of `k` lies h * head_stride + t * token_stride + d * dim_stride elements after k; v
// likewise. Strides are in elements.
struct KvLayerView {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  DType dtype = DType::kF16;  // kF32, kF16 or kBF16
  int64_t head_stride = 0, token_stride = 0, dim_stride = 1;
  bool operator==(const KvLayerView&) const = default;
};

// The state of a layer after exactly the segment's last token. Layouts: ConvSpec, DeltaNetSpec and MambaSpec
// of model/spec.h.
struct StateView {
  std::span<const float> state, tail;
};

// monostate: the layer has no memory, or its state at the segment's end is not known.
using LayerMemory = std::variant<std::monostate, KvLayerView, StateView>;

// Tokens [first, first + count) of a sequence. Positions are absolute; values are stored as projected.
// Immutable once published: `owner` keeps the memory alive and unchanged while any copy of the segment
// exists. Any thread may read.
struct KvSegment {
  KvIdentity id = {};
  KeyForm key_form = KeyForm::kRotated;
  int first = 0, count = 0;
  std::vector<LayerMemory> layers = {};  // one per layer of the spec
  std::shared_ptr<const void> owner = {};

  int end() const { return first + count; }
  // For an attention layer with its own memory.
  const KvLayerView& kv(size_t layer) const { return std::get<KvLayerView>(layers[layer]); }
  KvLayerView& kv(size_t layer) { return std::get<KvLayerView>(layers[layer]); }
};

// Throws kBadRequest unless the segment matches the model and variant of `id` (however computed), has every
// layer of the spec, a plain dtype, and strides that cannot reach the same element twice.
void CheckSegment(const KvSegment& segment, const ModelSpec& spec, const KvIdentity& id);

// Values of one head and token: out has head_dim entries. `base` is view.k or view.v, `t` counts from the
// segment's first token.
void ReadHead(const KvLayerView& view, const std::byte* base, int head, int t, std::span<float> out);

// Views of tokens [first, first + count) of `segment`, which holds them. States are kept only when the range
// ends where the segment does.
KvSegment Slice(const KvSegment& segment, int first, int count);

// The compact layout, layer after layer: for attention [K, count, D] keys, then values; for others state,
// then tail.
size_t CompactBytes(const KvSegment& segment, const ModelSpec& spec);
// Views of that layout at `memory`. The segment's layers give the kinds and dtypes.
void PlaceCompact(KvSegment& segment, const ModelSpec& spec, const std::byte* memory);

// Gives the segment its own compact memory through PlaceCompact: aligned to 64 bytes, not yet filled. Returns
// its start.
std::byte* AllocateCompact(KvSegment& segment, const ModelSpec& spec);

// The segment's contents, compact in memory that holds nothing else: the segment itself if it is already so,
// else a copy.
KvSegment Compact(const KvSegment& segment, const ModelSpec& spec);

}  // namespace pd
