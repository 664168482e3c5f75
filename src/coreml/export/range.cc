#include "coreml/export/range.h"

#include <algorithm>

namespace pd {
namespace {

// The largest power of two, at most 1, that brings `most` to at most kComfortable.
float PowerFor(float most) {
  float scale = 1;
  while (most * scale > kComfortable) scale /= 2;
  return scale;
}

}  // namespace

mil::RangeScales UnitScales(const ModelSpec& spec) {
  return {1, std::vector<mil::LayerScales>(spec.layers.size())};
}

mil::RangeScales ChooseScales(const ModelSpec& spec, const std::vector<LayerSample>& layers) {
  mil::RangeScales scales = UnitScales(spec);
  float stream = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSample& layer = layers[i];
    stream = std::max(stream, layer.stream);
    // An activation alone is not linear in its input's scale.
    if (MlpOf(spec.layers[i]).gated) scales.layers[i].hidden = PowerFor(layer.hidden);
    // Without its own norm, a block's output has the scale of the stream that it is added to.
    if (spec.layers[i].post_mixer)
      scales.layers[i].attn_out = PowerFor(layer.attn_out);
    else
      stream = std::max(stream, layer.attn_out);
    if (spec.layers[i].ffn.at(0).post)
      scales.layers[i].mlp_out = PowerFor(layer.mlp_out);
    else
      stream = std::max(stream, layer.mlp_out);
  }
  scales.stream = PowerFor(stream);
  return scales;
}

std::vector<float> ScaledMagnitudes(const ModelSpec& spec, const std::vector<LayerSample>& layers,
                                    const mil::RangeScales& scales) {
  std::vector<float> result;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSample& layer = layers[i];
    const mil::LayerScales& s = scales.layers[i];
    const float attn_out = spec.layers[i].post_mixer ? s.attn_out : scales.stream;
    const float mlp_out = spec.layers[i].ffn.at(0).post ? s.mlp_out : scales.stream;
    result.push_back(std::max({layer.stream * scales.stream, layer.attn_out * attn_out,
                               layer.hidden * s.hidden, layer.mlp_out * mlp_out, layer.other}));
  }
  return result;
}

}  // namespace pd
