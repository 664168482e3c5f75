// A sequence's memory as a value, on its way from one device to another: the producer describes, the consumer
// copies.
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

// What is fixed for a sequence when it is admitted.
struct Variant {
  RopeVariant rope;
  uint64_t adapter = 0;  // digest of the adapter's weights; 0: none
  auto operator<=>(const Variant&) const = default;
};

// What keys and values are a function of, beside the tokens.
struct KvIdentity {
  uint64_t spec = 0;      // SpecDigest
  uint64_t weights = 0;   // WeightsDigest: a base model's cache never serves a fine-tune
  uint64_t computed = 0;  // how: arithmetic, quantisation and form of the producer's weights (ComputedBy)
  Variant variant = {};
  bool operator==(const KvIdentity&) const = default;
};
// The digest for KvIdentity::computed of a producer that describes itself: "mlx metal f16 q4".
uint64_t ComputedBy(std::string_view producer);

enum class KeyForm : uint8_t {
  kRotated,  // ready to be attended
  kRaw,      // after qk-norm, before rotation: the importer rotates, exactly once
};

// The tokens of the segment in one attention layer: K heads of D values each. Element (head h, t-th token of
// the segment, dim d) of `k` lies h * head_stride + t * token_stride + d * dim_stride elements after k; v
// likewise. Strides are in elements.
struct KvLayerView {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  DType dtype = DType::kF16;  // kF32, kF16 or kBF16
  int64_t head_stride = 0, token_stride = 0, dim_stride = 1;
  bool operator==(const KvLayerView&) const = default;
};

// The state of a layer after the segment's last token, and after no other. Layouts: ConvSpec, DeltaNetSpec
// and MambaSpec of model/spec.h.
struct StateView {
  std::span<const float> state, tail;
};

// monostate: the layer has no memory of its own, or (of a state) it is not known at the segment's end.
using LayerMemory = std::variant<std::monostate, KvLayerView, StateView>;

// Tokens [first, first + count) of a sequence. Positions are absolute; values are as projected. Immutable
// once published: `owner` keeps the memory alive and unchanged for as long as any copy of the segment exists.
// Any thread may read.
struct KvSegment {
  KvIdentity id = {};
  KeyForm key_form = KeyForm::kRotated;
  int first = 0, count = 0;
  std::vector<LayerMemory> layers = {};  // one for each layer of the spec
  std::shared_ptr<const void> owner = {};

  int end() const { return first + count; }
  // Of an attention layer with memory of its own.
  const KvLayerView& kv(size_t layer) const { return std::get<KvLayerView>(layers[layer]); }
  KvLayerView& kv(size_t layer) { return std::get<KvLayerView>(layers[layer]); }
};

// Throws kBadRequest unless the segment is of the model and variant of `id` (however computed), has every
// layer of the spec, a plain dtype, and strides that cannot reach the same element twice.
void CheckSegment(const KvSegment& segment, const ModelSpec& spec, const KvIdentity& id);

// Values of one head and token: out has head_dim entries. `base` is view.k or view.v, `t` counts from the
// segment's first token.
void ReadHead(const KvLayerView& view, const std::byte* base, int head, int t, std::span<float> out);

// Views of tokens [first, first + count) of `segment`, which holds them. States stay only with its end.
KvSegment Slice(const KvSegment& segment, int first, int count);

// The compact layout: layer after layer, of attention [K, count, D] keys, then values; of others state, then
// tail.
size_t CompactBytes(const KvSegment& segment, const ModelSpec& spec);
// Views of that layout at `memory`. The segment's layers say what there is and of which dtype.
void PlaceCompact(KvSegment& segment, const ModelSpec& spec, const std::byte* memory);

// Gives the segment compact memory of its own, from a multiple of 64 bytes on and not yet filled, through
// PlaceCompact. Where it begins.
std::byte* AllocateCompact(KvSegment& segment, const ModelSpec& spec);

// What is in the segment, compact in memory that holds nothing else: the segment itself if it lies so, or a
// copy.
KvSegment Compact(const KvSegment& segment, const ModelSpec& spec);

}  // namespace pd
