#include "model/weights.h"

#include <fmt/format.h>

namespace pd {

// The names of attention with a dense MLP are those of exported packages and of digests: they do not change.
const char* PartName(Part part) {
  switch (part) {
    case Part::kEmbed:
      return "embed";
    case Part::kFinalNorm:
      return "final_norm";
    case Part::kHead:
      return "head";
    case Part::kPerLayerEmbed:
      return "per_layer_embed";
    case Part::kPerLayerModel:
      return "per_layer_model";
    case Part::kPerLayerNorm:
      return "per_layer_norm";
    case Part::kPreMixer:
      return "pre_attn";
    case Part::kPostMixer:
      return "post_attn";
    case Part::kPostFfn:
      return "post_ffn";
    case Part::kQ:
      return "q";
    case Part::kK:
      return "k";
    case Part::kV:
      return "v";
    case Part::kO:
      return "o";
    case Part::kQNorm:
      return "q_gain";
    case Part::kKNorm:
      return "k_gain";
    case Part::kSinks:
      return "sinks";
    case Part::kAttnGate:
      return "attn_gate";
    case Part::kQDown:
      return "q_down";
    case Part::kQDownNorm:
      return "q_down_norm";
    case Part::kKvDown:
      return "kv_down";
    case Part::kKvDownNorm:
      return "kv_down_norm";
    case Part::kKvUp:
      return "kv_up";
    case Part::kQkv:
      return "qkv";
    case Part::kZ:
      return "z";
    case Part::kBeta:
      return "beta";
    case Part::kDecay:
      return "decay";
    case Part::kConv:
      return "conv";
    case Part::kDecayBias:
      return "decay_bias";
    case Part::kDecayRate:
      return "decay_rate";
    case Part::kMixerNorm:
      return "mixer_norm";
    case Part::kOut:
      return "out";
    case Part::kSkip:
      return "skip";
    case Part::kGateB:
      return "gate_b";
    case Part::kGateC:
      return "gate_c";
    case Part::kIn:
      return "in";
    case Part::kPreBranch:
      return "pre_mlp";
    case Part::kPostBranch:
      return "post_mlp";
    case Part::kGate:
      return "gate";
    case Part::kUp:
      return "up";
    case Part::kDown:
      return "down";
    case Part::kRouter:
      return "router";
    case Part::kSelectBias:
      return "select_bias";
    case Part::kExpertGate:
      return "expert_gate";
    case Part::kExpertUp:
      return "expert_up";
    case Part::kExpertDown:
      return "expert_down";
    case Part::kExpertScale:
      return "expert_scale";
    case Part::kRouterScale:
      return "router_scale";
    case Part::kLatentDown:
      return "latent_down";
    case Part::kLatentUp:
      return "latent_up";
    case Part::kSharedGate:
      return "shared_gate";
    case Part::kSharedUp:
      return "shared_up";
    case Part::kSharedDown:
      return "shared_down";
    case Part::kSharedWeight:
      return "shared_weight";
    case Part::kPerLayerIn:
      return "per_layer_in";
    case Part::kPerLayerOut:
      return "per_layer_out";
    case Part::kPerLayerPost:
      return "per_layer_post";
    case Part::kScalar:
      return "scalar";
    case Part::kMtpEmbedNorm:
      return "mtp_embed_norm";
    case Part::kMtpHiddenNorm:
      return "mtp_hidden_norm";
    case Part::kMtpEmbedIn:
      return "mtp_embed_in";
    case Part::kMtpHiddenIn:
      return "mtp_hidden_in";
    case Part::kMtpFinalNorm:
      return "mtp_final_norm";
  }
  return "?";
}

std::string WeightInfo::Name() const {
  std::string name = PartName(part);
  if (layer >= 0) name = fmt::format("layers.{}.{}", layer, name);
  if (branch > 0) name += fmt::format(".{}", branch);
  switch (piece) {
    case Piece::kWeight:
      return name;
    case Piece::kBias:
      return name + ".bias";
    case Piece::kAdapterDown:
      return name + fmt::format(".adapter{}.down", adapter);
    case Piece::kAdapterUp:
      return name + fmt::format(".adapter{}.up", adapter);
  }
  return name;
}

std::vector<WeightInfo> ListWeights(const ModelSpec& m) {
  std::vector<WeightInfo> list;
  Weights<std::monostate> none;
  MakeRoom(m, none);
  ForEachWeight(m, none, [&](const std::monostate&, const WeightInfo& info) { list.push_back(info); });
  return list;
}

}  // namespace pd
