#include "coreml/mil/encoded.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace pd::mil {

Folding FoldingOf(const ModelSpec& spec, const RangeScales& scales, const WeightInfo& info) {
  if (info.part == "embed") return {spec.embed_scale * scales.stream, false};
  if (info.layer < 0) return {};  // the final norm and the head are not part of a prefill program
  const LayerSpec& layer = spec.layers[size_t(info.layer)];
  const LayerScales& s = scales.layers[size_t(info.layer)];
  const AttentionSpec& a = layer.attn;
  Folding folding;
  switch (info.role) {
    case Role::kQueryGain:
      return {a.scale, a.qk_norm->plus_one};
    case Role::kQuery:
    case Role::kQueryBias:
      return {a.qk_norm ? 1.f : a.scale, false};
    case Role::kGain: {
      const bool post_attn = info.part == "post_attn", post_mlp = info.part == "post_mlp";
      folding.plus_one = info.part == "pre_attn"  ? layer.pre_attn.plus_one
                         : info.part == "pre_mlp" ? layer.pre_mlp.plus_one
                         : post_attn              ? layer.post_attn->plus_one
                         : post_mlp               ? layer.post_mlp->plus_one
                                                  : a.qk_norm->plus_one;
      if (post_attn || post_mlp) folding.scale = scales.stream;
      return folding;
    }
    default:
      break;
  }
  const float attn_out = layer.post_attn ? s.attn_out : scales.stream;
  const float mlp_out = layer.post_mlp ? s.mlp_out : scales.stream;
  if (info.part == "o" || info.part == "o.bias") folding.scale = attn_out;
  if (info.part == "up" || info.part == "up.bias") folding.scale = s.hidden;
  if (info.part == "down") folding.scale = mlp_out / s.hidden;
  if (info.part == "down.bias") folding.scale = mlp_out;
  return folding;
}

float FoldedEpsilon(const ModelSpec& spec, const RangeScales& scales, const WeightInfo& gain,
                    const NormSpec& norm) {
  PD_CHECK(gain.layer >= 0 && gain.layer < int(spec.layers.size()));
  const LayerScales& s = scales.layers[size_t(gain.layer)];
  float scale = 1;
  if (gain.part == "pre_attn" || gain.part == "pre_mlp") scale = scales.stream;
  if (gain.part == "post_attn") scale = s.attn_out;
  if (gain.part == "post_mlp") scale = s.mlp_out;
  // An epsilon of 0 in fp16 would divide zero by zero in rows of padding; the smallest half is still far
  // below any mean square that a scaled stream has.
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
    for (int64_t slack = 0; slack < kMostSlack; ++slack) {  // a little more than even, where even is bad too
      const int64_t even = (in + parts - 1) / parts, width = ((even + kAlign - 1) / kAlign + slack) * kAlign;
      std::vector<int64_t> widths;
      for (int64_t at = 0; at < in; at += width) widths.push_back(std::min(width, in - at));
      if (std::all_of(widths.begin(), widths.end(), good)) return widths;
    }
  throw Fail(ErrorKind::kUnsupported,
             "a matrix of {} x {} cannot be cut into convolutions for the Neural Engine", out, in);
}

std::string Identifier(const WeightInfo& info) {
  std::string name = info.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

}  // namespace pd::mil
