#include "model/support.h"

#include <functional>

#include "base/error.h"

namespace pd {
namespace {

// Tells every feature that a model needs, with its layer (-1: of the model).
class Needs {
 public:
  using Fn = std::function<void(Feature, int layer)>;
  explicit Needs(const Fn& fn) : fn_(fn) {}

  void Model(const ModelSpec& m) {
    Norm(m.final_norm);
    If(m.per_layer.has_value(), Feature::kPerLayerInputs);
    If(!m.mtp.empty(), Feature::kMtp);
    If(!m.adapters.empty(), Feature::kAdapters);
    for (const LayerSpec& layer : m.layers) {
      ++layer_;
      Layer(layer);
    }
  }

 private:
  void If(bool needed, Feature feature) {
    if (needed) fn_(feature, layer_);
  }

  void Norm(const NormSpec& s) {
    If(s.mean || s.bias, Feature::kLayerNorm);
    If(!s.gain, Feature::kNormNoGain);
  }
  void Norm(const std::optional<NormSpec>& s) {
    if (s) Norm(*s);
  }

  void Gate(const GateSpec& s) {
    const bool usual =
        s.act == Activation::kSilu || s.act == Activation::kGelu || s.act == Activation::kGeluTanh;
    If(!usual || s.sigmoid_gain != 1 || s.up_offset != 0 || s.limit || s.cutoff, Feature::kMoreGates);
  }

  void Layer(const LayerSpec& s) {
    Norm(s.pre_mixer), Norm(s.post_mixer), Norm(s.post_ffn);
    if (const AttentionSpec* a = FindAttention(s)) Attention(*a);
    If(std::holds_alternative<DeltaNetSpec>(s.mixer), Feature::kDeltaNet);
    If(std::holds_alternative<MambaSpec>(s.mixer), Feature::kMamba);
    If(std::holds_alternative<ShortConvSpec>(s.mixer), Feature::kShortConv);
    for (const Branch& branch : s.ffn) {
      Norm(branch.pre), Norm(branch.post);
      If(std::holds_alternative<MoeSpec>(branch.body), Feature::kExperts);
      if (const auto* mlp = std::get_if<MlpSpec>(&branch.body)) {
        If(!mlp->gated, Feature::kUngatedMlp);
        Gate(mlp->gate);
      }
    }
    If(s.per_layer.has_value(), Feature::kPerLayerInputs);
    If(s.scalar, Feature::kLayerScalar);
    If(std::holds_alternative<std::monostate>(s.mixer) || s.ffn.size() != 1 || s.post_ffn,
       Feature::kLayerShape);
  }

  void Attention(const AttentionSpec& a) {
    If(a.soft_cap.has_value(), Feature::kScoreCap);
    If(a.value_dim() != a.head_dim, Feature::kValueWidth);
    If(a.values != Values::kOwn, Feature::kSharedValues);
    If(a.window && a.window->chunked, Feature::kChunkedWindow);
    If(a.query_scale.has_value(), Feature::kQueryScale);
    If(a.kv_from.has_value(), Feature::kSharedMemory);
    If(a.latent.has_value(), Feature::kLatentAttention);
    If(a.gate.has_value(), Feature::kAttentionGate);
    If(a.sinks, Feature::kSinks);
    if (a.qk_norm) Norm(a.qk_norm->norm);
    Norm(a.v_norm);
  }

  const Fn& fn_;
  int layer_ = -1;
};

}  // namespace

const char* Name(Feature feature) {
  switch (feature) {
    case Feature::kLayerNorm:
      return "LayerNorm";
    case Feature::kNormNoGain:
      return "a norm without a gain";
    case Feature::kUngatedMlp:
      return "an MLP without a gate";
    case Feature::kMoreGates:
      return "an activation other than silu and gelu, or a clamped one";
    case Feature::kScoreCap:
      return "attention scores with a soft cap";
    case Feature::kValueWidth:
      return "value heads of another size than key heads";
    case Feature::kSharedValues:
      return "values taken from keys";
    case Feature::kChunkedWindow:
      return "attention in chunks";
    case Feature::kQueryScale:
      return "queries scaled by position";
    case Feature::kSharedMemory:
      return "keys and values of another layer";
    case Feature::kLatentAttention:
      return "latent attention (MLA)";
    case Feature::kAttentionGate:
      return "a gate on attention's output";
    case Feature::kSinks:
      return "attention sinks";
    case Feature::kDeltaNet:
      return "a gated delta net";
    case Feature::kMamba:
      return "a Mamba-2 mixer";
    case Feature::kShortConv:
      return "a short convolution";
    case Feature::kExperts:
      return "a mixture of experts";
    case Feature::kPerLayerInputs:
      return "embeddings of each layer's own";
    case Feature::kLayerScalar:
      return "a layer with a scalar";
    case Feature::kLayerShape:
      return "other parts than one mixer and one feed-forward branch";
    case Feature::kMtp:
      return "layers for multi-token prediction";
    case Feature::kAdapters:
      return "adapters (LoRA)";
    case Feature::kCount:
      break;
  }
  return "?";
}

void CheckSupport(const ModelSpec& spec, std::string_view device, const Support& support) {
  const Needs::Fn check = [&](Feature feature, int layer) {
    if (support.Has(feature)) return;
    const std::string where = layer < 0 ? "the model" : fmt::format("layer {} of the model", layer);
    throw Fail(ErrorKind::kUnsupported, "{}: {} has {}, which this device cannot compute", device, where,
               Name(feature));
  };
  Needs(check).Model(spec);
}

}  // namespace pd
