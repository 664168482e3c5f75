// What a backend's operations can compute. A model that needs more is refused when it is loaded, by name.
#pragma once
#include <bitset>
#include <initializer_list>
#include <string_view>

#include "model/spec.h"

namespace pd {

// What a model may need beyond attention over own keys and values, RMSNorm with a gain, and a gated MLP with
// silu or gelu.
enum class Feature : uint8_t {
  kLayerNorm,  // NormSpec::mean or ::bias
  kNormNoGain,
  kUngatedMlp,
  kMoreGates,     // GateSpec beyond its activation, and activations other than silu and gelu
  kScoreCap,      // AttentionSpec::soft_cap
  kValueWidth,    // v_dim other than head_dim
  kSharedValues,  // values other than Values::kOwn
  kChunkedWindow,
  kQueryScale,
  kSharedMemory,  // kv_from
  kLatentAttention,
  kAttentionGate,
  kSinks,
  kDeltaNet,
  kMamba,
  kShortConv,
  kExperts,
  kPerLayerInputs,
  kLayerScalar,
  kLayerShape,  // no mixer, or not exactly one branch
  kMtp,
  kAdapters,
  kCount
};
const char* Name(Feature feature);  // "LayerNorm", "attention sinks", "a mixture of experts"

// What a backend can compute.
class Support {
 public:
  Support(std::initializer_list<Feature> features) {
    for (Feature f : features) Add(f);
  }
  void Add(Feature feature) { has_.set(size_t(feature)); }
  bool Has(Feature feature) const { return has_.test(size_t(feature)); }

 private:
  std::bitset<size_t(Feature::kCount)> has_;
};

// Throws kUnsupported, naming the first layer and what of it `device` ("cpu") cannot compute.
void CheckSupport(const ModelSpec& spec, std::string_view device, const Support& support);

}  // namespace pd
