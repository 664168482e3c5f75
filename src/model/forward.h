// The transformer: one definition for every family, lowered by every backend.
#pragma once
#include <optional>
#include <utility>
#include <variant>

#include "model/mixers.h"

namespace pd {

template <class T>
struct Passed {
  std::optional<T> stream;  // [N, width]: for the layers after the range
  std::optional<T> logits;  // [rows.logits.size(), vocab]
};

// Layers [range.first, range.last), from the tokens of `rows`, or from the stream of the layers before. With
// the last layer: logits of rows.logits. Without any of those: nothing, and the pass ends at the last layer
// that has memory, as soon as its memory is made. A range may not part a layer from the one whose memory it
// reads.
template <Ops O>
Passed<typename O::Tensor> Forward(O& o, const ModelSpec& m, const Weights<typename O::Weight>& w,
                                   const Rows& rows, LayerRange range,
                                   std::optional<typename O::Tensor> stream = {}) {
  using T = typename O::Tensor;
  Pass<O> pass{o, rows};
  T x = stream ? *std::move(stream) : o.Embed(w.embed, m.embed_scale, rows);  // [N, width]: the stream
  const int stop = rows.logits.empty() ? LastMemory(m) : -1;
  for (int i = range.first; i < range.last; ++i) {
    const LayerSpec& s = m.layers[size_t(i)];
    const auto& l = w.layers[size_t(i)];
    if constexpr (requires { o.BeginLayer(i, x); }) o.BeginLayer(i, x);
    std::optional<T> h;  // what the mixer reads, and then the branches: the normed stream; absent: the stream
    if (s.pre_mixer) h = o.Norm(x, l.pre_mixer, *s.pre_mixer);
    if (!std::holds_alternative<std::monostate>(s.mixer)) {
      auto y =
          std::visit([&](const auto& spec,
                         const auto& weights) { return pass.Mix(i, spec, weights, h ? *h : x, i == stop); },
                     s.mixer, l.mixer);
      if (!y) return {};
      y = pass.Normed(s.post_mixer, l.post_mixer, *std::move(y));
      if (!s.parallel) h.reset();
      x = o.Add(std::move(x), *y, s.residual_scale);
    }
    std::optional<T> sum;
    for (size_t k = 0; k < s.ffn.size(); ++k) {
      const Branch& f = s.ffn[k];
      if (f.pre) h = o.Norm(x, l.ffn[k].pre, *f.pre);
      auto y = std::visit(
          [&](const auto& spec, const auto& weights) { return pass.Feed(spec, weights, h ? *h : x); }, f.body,
          l.ffn[k].body);
      y = pass.Normed(f.post, l.ffn[k].post, std::move(y));
      sum = sum ? o.Add(*std::move(sum), y, 1) : std::move(y);
    }
    if (sum) x = o.Add(std::move(x), pass.Normed(s.post_ffn, l.post_ffn, *std::move(sum)), s.residual_scale);
  }
  if (range.last < int(m.layers.size())) return {std::move(x), std::nullopt};
  if (rows.logits.empty()) return {};
  const T h = o.Norm(x, w.final_norm, m.final_norm);
  return {std::nullopt, o.Logits(h, w.HeadOrEmbed(), m.logit_cap, m.logit_scale, rows)};
}

// The whole model: logits, or nothing when rows.logits is empty.
template <Ops O>
std::optional<typename O::Tensor> Forward(O& o, const ModelSpec& m, const Weights<typename O::Weight>& w,
                                          const Rows& rows) {
  return Forward(o, m, w, rows, AllLayers(m)).logits;
}

}  // namespace pd
