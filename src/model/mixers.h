// What a layer does: a token mixer, and feed-forward branches. Each function is the definition for every
// family and every backend; a new mixer is one more function here.
//
// One op a statement: the order of a call's arguments is the compiler's choice, the order of an exported
// program is ours.
#pragma once
#include <optional>
#include <utility>

#include "base/error.h"
#include "model/ops.h"

namespace pd {

// One call of Forward.
template <Ops O>
struct Pass {
  using T = typename O::Tensor;
  using W = typename O::Weight;
  O& o;
  const Rows& rows;

  T Normed(const std::optional<NormSpec>& norm, const NormWeights<W>& w, T x) {
    return norm ? o.Norm(x, w, *norm) : std::move(x);
  }

  // ---- attention ----

  T QkNormed(const QkNorm& norm, int heads, const T& t, const NormWeights<W>& w) {
    return norm.full_width ? o.Norm(t, w, norm.norm) : o.NormHeads(t, w, norm.norm, heads);
  }

  // Queries or keys made ready for attention: normed and rotated.
  T Placed(int layer, const AttentionSpec& a, int heads, T t, const NormWeights<W>& w, bool keys) {
    if (a.qk_norm && !a.qk_norm->after_rope) t = QkNormed(*a.qk_norm, heads, t, w);
    if constexpr (requires { o.RawKeys(layer, t); }) {
      if (keys) o.RawKeys(layer, t);
    }
    if (a.rope) t = o.Rope(std::move(t), heads, *a.rope, rows);
    if (a.qk_norm && a.qk_norm->after_rope) t = QkNormed(*a.qk_norm, heads, t, w);
    return t;
  }

  struct Projected {
    std::optional<T> q;  // [N, H*D]; absent when only keys and values are wanted
    T k, v;              // [N, K*D], [N, K*v_dim]
  };

  Projected Project(const AttentionWeights<W>& w, const T& h, bool memory_only) {
    if constexpr (requires { o.Qkv(h, w.q, *w.k, *w.v); }) {
      if (!memory_only) {
        auto [q, k, v] = o.Qkv(h, w.q, *w.k, *w.v);
        return {std::move(q), std::move(k), std::move(v)};
      }
    }
    auto k = o.Linear(h, *w.k);
    auto v = o.Linear(h, *w.v);
    if (memory_only) return {std::nullopt, std::move(k), std::move(v)};
    auto q = o.Linear(h, w.q);
    return {std::move(q), std::move(k), std::move(v)};
  }

  // On the normed stream h [N, width]: [N, width], or nullopt when only the layer's memory is wanted.
  std::optional<T> Mix(int layer, const AttentionSpec& a, const AttentionWeights<W>& w, const T& h,
                       bool memory_only) {
    auto [q, k, v] = Project(w, h, memory_only);
    k = Placed(layer, a, a.kv_heads, std::move(k), w.k_norm, true);
    if (a.v_norm) v = o.NormHeads(v, {}, *a.v_norm, a.kv_heads);
    o.Append(layer, a, std::move(k), std::move(v), rows);
    if (memory_only) return std::nullopt;
    q = Placed(layer, a, a.heads, *std::move(q), w.q_norm, false);
    const auto y = o.Attend(layer, a, *std::move(q), rows);  // [N, H*v_dim]
    return o.Linear(y, w.o);
  }

  // Mixers that no backend has yet: CheckSupport refuses their models.
  template <class Spec, class MixerWeights>
  std::optional<T> Mix(int, const Spec&, const MixerWeights&, const T&, bool) {
    PD_CHECK(!"a mixer that was refused at load");
  }

  // ---- feed-forward ----

  T Feed(const MlpSpec& s, const MlpWeights<W>& w, const T& h) {
    if (!s.gated) {
      auto up = o.Linear(h, w.up);  // [N, hidden]
      up = o.Gate(std::move(up), nullptr, s.gate);
      return o.Linear(up, w.down);
    }
    if constexpr (requires { o.GatedMlp(h, *w.gate, w.up, w.down, s.gate); }) {
      return o.GatedMlp(h, *w.gate, w.up, w.down, s.gate);
    } else {
      auto gate = o.Linear(h, *w.gate);   // [N, hidden]
      const auto up = o.Linear(h, w.up);  // [N, hidden]
      gate = o.Gate(std::move(gate), &up, s.gate);
      return o.Linear(gate, w.down);
    }
  }

  template <class Spec, class FeedWeights>
  T Feed(const Spec&, const FeedWeights&, const T&) {
    PD_CHECK(!"a feed-forward that was refused at load");
  }
};

}  // namespace pd
