#include "coreml/mil/encoded.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace pd::mil {
namespace {

// Whether a projection reads the residual stream itself: no norm stands between, which would divide its scale
// out.
bool ReadsStream(const LayerSpec& layer, const WeightInfo& info) {
  switch (info.part) {
    case Part::kQ:
    case Part::kK:
    case Part::kV:
      return !layer.pre_mixer;
    case Part::kGate:
    case Part::kUp:
      return !layer.ffn.at(size_t(info.branch)).pre && !(layer.parallel && layer.pre_mixer);
    default:
      return false;
  }
}

}  // namespace

float FoldedScale(const ModelSpec& spec, const RangeScales& scales, const WeightInfo& info) {
  if (info.part == Part::kEmbed) return spec.embed_scale * scales.stream;
  if (info.layer < 0) return 1;  // the final norm and the head are not part of a prefill program
  const LayerSpec& layer = spec.layers[size_t(info.layer)];
  const LayerScales& s = scales.layers[size_t(info.layer)];
  const AttentionSpec& a = AttentionOf(layer);
  const float hidden = MlpOf(layer).gated ? s.hidden : 1;  // an activation alone cannot be scaled
  const float mlp_out = layer.ffn.at(size_t(info.branch)).post ? s.mlp_out : scales.stream;
  const bool bias = info.piece == Piece::kBias;
  const float read = !bias && ReadsStream(layer, info) ? 1 / scales.stream : 1;
  switch (info.part) {
    case Part::kQNorm:
      return a.scale;
    case Part::kQ:
      return read * (a.qk_norm ? 1.f : a.scale);
    case Part::kPostMixer:
    case Part::kPostBranch:
      return scales.stream;
    case Part::kO:
      return layer.post_mixer ? s.attn_out : scales.stream;
    case Part::kUp:
      return read * hidden;
    case Part::kDown:
      return bias ? mlp_out : mlp_out / hidden;
    default:
      return read;
  }
}

float FoldedEpsilon(const ModelSpec& spec, const RangeScales& scales, const WeightInfo& gain,
                    const NormSpec& norm) {
  PD_CHECK(gain.layer >= 0 && gain.layer < int(spec.layers.size()));
  const LayerScales& s = scales.layers[size_t(gain.layer)];
  float scale = 1;
  if (gain.part == Part::kPreMixer || gain.part == Part::kPreBranch) scale = scales.stream;
  if (gain.part == Part::kPostMixer) scale = s.attn_out;
  if (gain.part == Part::kPostBranch) scale = s.mlp_out;
  // With an epsilon of 0 in fp16, padding rows would divide zero by zero; the smallest half is still far
  // below any mean square of a scaled stream.
  constexpr float kLeast = 0x1p-24f;
  return std::max(norm.eps * scale * scale, kLeast);
}

bool InDmaNotch(int64_t out, int64_t in) {
  constexpr int64_t kCores = 16, kStep = 1 << 20, kReach = 16 << 10;
  const int64_t streamed = (out + kCores - 1) / kCores * in * 2, over = streamed % kStep;
  return streamed >= kStep && std::min(over, kStep - over) <= kReach;
}

std::vector<int64_t> SplitInputs(int64_t out, int64_t in, bool half) {
  constexpr int64_t kAlign = 32, kMostParts = 64, kMostSlack = 4;
  const auto good = [&](int64_t width) { return width <= kMostDepth && !(half && InDmaNotch(out, width)); };
  if (good(in)) return {in};
  for (int64_t parts = 2; parts <= kMostParts; ++parts)
    for (int64_t slack = 0; slack < kMostSlack;
         ++slack) {  // slightly uneven widths, if even ones are bad too
      const int64_t even = (in + parts - 1) / parts, width = ((even + kAlign - 1) / kAlign + slack) * kAlign;
      std::vector<int64_t> widths;
      for (int64_t at = 0; at < in; at += width) widths.push_back(std::min(width, in - at));
      if (std::all_of(widths.begin(), widths.end(), good)) return widths;
    }
  throw Fail(ErrorKind::kUnsupported,
             "a matrix of {} x {} cannot be cut into convolutions for the Neural Engine", out, in);
}

std::string Identifier(const WeightInfo& info) {
  std::string name = info.Name();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

}  // namespace pd::mil
