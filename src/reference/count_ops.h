// The cost of a Forward, computed from shapes alone: floating-point operations and values read.
#pragma once
#include <algorithm>

#include "model/forward.h"

namespace pd {

// Counts each multiplication and addition of matrix products and attention as one operation. Norms, rotations
// and activations are not counted: they are below one percent.
class CountOps {
 public:
  using Weight = Shape;
  struct Tensor {
    int64_t rows = 0, channels = 0;
  };
  double flops = 0;
  double weight_values = 0;  // entries of all weights read; for the embedding table only the rows looked up
  double kv_values = 0;      // entries of keys and values read by attention

  Tensor Embed(const Weight& table, float, const Rows& rows) {
    weight_values += double(rows.count()) * double(table[1]);
    return {rows.count(), table[1]};
  }
  Tensor Norm(const Tensor& x, const NormWeights<Weight>& w, const NormSpec&) {
    for (const auto* vector : {&w.gain, &w.bias})
      if (*vector) weight_values += double((**vector)[0]);
    return x;
  }
  Tensor NormHeads(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& spec, int) {
    return Norm(x, w, spec);
  }
  Tensor Linear(const Tensor& x, const LinearWeights<Weight>& w) {
    if (w.bias) weight_values += double((*w.bias)[0]);
    return Product(x.rows, w.weight);
  }
  Tensor Rope(Tensor x, int, const RopeSpec&, const Rows&) { return x; }
  void Append(int, const AttentionSpec&, Tensor, Tensor, const Rows&) {}
  Tensor Attend(int, const AttentionSpec& a, Tensor q, const Rows& rows) {
    for (int p : rows.pos) {
      const int keys = a.window ? std::min(p + 1, a.window->size) : p + 1;
      flops += 4.0 * a.q_width() * keys;  // q.k and p.v, one multiplication and one addition each
      kv_values += 2.0 * a.kv_width() * keys;
    }
    return q;
  }
  Tensor Gate(Tensor x, const Tensor*, const GateSpec&) { return x; }
  Tensor Add(Tensor x, const Tensor&, float) { return x; }
  Tensor Logits(const Tensor&, const Weight& head, std::optional<float>, float, const Rows& rows) {
    return Product(int64_t(rows.logits.size()), head);
  }

 private:
  Tensor Product(int64_t rows, const Weight& w) {
    weight_values += double(w[0]) * double(w[1]);
    flops += 2.0 * double(rows) * double(w[0]) * double(w[1]);
    return {rows, w[0]};
  }
};

struct Cost {
  double flops = 0, weight_values = 0, kv_values = 0;
};
// The cost of computing tokens [first, first + count) of one sequence, with logits for the last `logits` of
// them.
Cost CostOf(const ModelSpec& spec, int first, int count, int logits);

}  // namespace pd
