#include "coreml/mil/prefill.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace pd::mil {
namespace {

constexpr std::array kForms = {std::pair{AttentionForm::kHeads, "heads"},
                               std::pair{AttentionForm::kChannels, "channels"},
                               std::pair{AttentionForm::kGrouped, "grouped"}};
constexpr int kRow = 32;  // halves in 64 bytes

}  // namespace

const Support& PrefillSupport() {
  static const Support support = {Feature::kLayerNorm, Feature::kUngatedMlp, Feature::kScoreCap};
  return support;
}

const char* Name(AttentionForm form) { return kForms.at(size_t(form)).second; }

std::optional<AttentionForm> AttentionFormOf(std::string_view name) {
  for (const auto& [form, known] : kForms)
    if (name == known) return form;
  return std::nullopt;
}

std::string FunctionName(const PrefillShape& shape) {
  return fmt::format("prefill_t{}_s{}", shape.tokens, shape.history);
}
std::string PastKeys(int layer) { return fmt::format("past_k_{}", layer); }
std::string PastValues(int layer) { return fmt::format("past_v_{}", layer); }
std::string NewKeys(int layer) { return fmt::format("new_k_{}", layer); }
std::string NewValues(int layer) { return fmt::format("new_v_{}", layer); }

int PastWidth(const AttentionSpec& attn, int history) {
  if (!attn.window) return history;
  const int64_t needed = (int64_t(attn.window->size) - 1 + kRow - 1) / kRow * kRow;
  return int(std::min<int64_t>(history, needed));
}

const RopeInput& PrefillInterface::RopeOf(const RopeSpec& rope, int head_dim) const {
  const auto it = std::find_if(ropes.begin(), ropes.end(),
                               [&](const RopeInput& r) { return r.rope == rope && r.head_dim == head_dim; });
  PD_CHECK(it != ropes.end());
  return *it;
}

const MaskInput& PrefillInterface::MaskOf(const AttentionSpec& attn) const {
  const auto it =
      std::find_if(masks.begin(), masks.end(), [&](const MaskInput& m) { return m.window == attn.window; });
  PD_CHECK(it != masks.end());
  return *it;
}

PrefillInterface InterfaceOf(const ModelSpec& spec, int history) {
  PrefillInterface result;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = AttentionOf(layer);
    const auto same_rope = [&](const RopeInput& r) { return r.rope == *a.rope && r.head_dim == a.head_dim; };
    if (a.rope && std::none_of(result.ropes.begin(), result.ropes.end(), same_rope)) {
      const size_t n = result.ropes.size();
      result.ropes.push_back({*a.rope, a.head_dim, fmt::format("cos_{}", n), fmt::format("sin_{}", n)});
    }
    const auto same_window = [&](const MaskInput& m) { return m.window == a.window; };
    if (std::none_of(result.masks.begin(), result.masks.end(), same_window))
      result.masks.push_back(
          {a.window, PastWidth(a, history), a.window ? fmt::format("mask_w{}", a.window->size) : "mask"});
  }
  return result;
}

}  // namespace pd::mil
