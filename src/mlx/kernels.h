// The fused operations that a step consists of. Composed writes each with plain MLX operations: it is the
// definition and runs everywhere; custom kernels (gpu_kernels.h) replace it where they apply.
#pragma once
#include <optional>
#include <vector>

#include "mlx/cache.h"
#include "mlx/weights.h"
#include "model/rows.h"

namespace pd {

// Neighbouring rows of one step that are consecutive tokens of one slot.
struct MlxRun {
  SlotId slot;
  int row, count, first;  // rows [row, row + count) are tokens [first, first + count)
};

// What a step's operations need to know about its rows.
struct MlxPlan {
  int count = 0;                                      // N
  std::vector<MlxRun> runs;                           // cover all rows, in order
  mx::array pos = mx::array(0), slot = mx::array(0);  // [N] i32
  int longest = 0;                                    // number of keys that the longest row sees
};

// Columns [first, first + width) of a matrix.
struct MlxColumns {
  mx::array matrix;  // [N, *]
  int first = 0, width = 0;
  mx::array Array() const { return Columns(matrix, first, first + width); }
};

struct MlxNorm {
  mx::array gain;  // [width / groups]
  float eps;
};

// y = act(first half) * second half of (norm(x) * w^T + bias), where each step is optional; + residual.
struct MlxProjection {
  const mx::array& x;  // [N, in]
  const MlxNorm* norm = nullptr;
  const LinearWeights<MlxWeight>& weights;
  const Activation* gate = nullptr;
  const mx::array* residual = nullptr;  // [N, out]
};

// Queries and keys are normed by head and rotated; keys and values are written to the cache.
struct MlxPlacement {
  const AttentionSpec& attention;
  const MlxColumns* q;      // [N, H*D]; nullptr when only keys and values are wanted
  const MlxColumns &k, &v;  // [N, K*D]
  const MlxNorm *q_norm = nullptr, *k_norm = nullptr;
  // [P, dims] f32: cosines, then sines, of each pair; row angle[n] of it belongs to row n of the step.
  const mx::array *angles = nullptr, *angle = nullptr;
};

// Tokens that stay on the device [R] i32, and a report for the host [R, 2] i32: the token, and the bits of
// its log-probability in f32. Reading an array may move it, so the two share no memory.
struct MlxChoice {
  mx::array tokens, report;
};
MlxChoice MakeChoice(const mx::array& tokens, const mx::array& logprobs);

class MlxKernels {
 public:
  virtual ~MlxKernels() = default;

  virtual mx::array Project(const MlxProjection& p);  // [N, out], or [N, out / 2] when gated

  // Whether Place writes into the cache's arrays, which then are never replaced: a failed step leaves other
  // slots' rows intact. Otherwise each step makes new arrays, and a failure loses them.
  virtual bool WritesInPlace() const { return false; }

  // Queries ready for Attend [N, H*D]; without q, an array that is computed once the cache holds the rows.
  virtual mx::array Place(const MlxPlacement& p, const MlxPlan& plan, MlxLayerCache& cache);

  // Attention of queries over the cache up to each row's position: [N, H*D].
  virtual mx::array Attend(const AttentionSpec& a, const mx::array& q, const MlxPlan& plan,
                           const MlxLayerCache& cache);

  // Place and Attend in one, with Attend's result; nullopt where that is not possible.
  virtual std::optional<mx::array> PlaceAndAttend(const MlxPlacement&, const MlxPlan&, MlxLayerCache&) {
    return std::nullopt;
  }

  // x [N, 2 C], gate beside up: act(gate) * up, [N, C].
  virtual mx::array Gate(const mx::array& x, Activation activation);

  // For each row of logits [R, V] the index of the largest, the lowest among equals.
  virtual MlxChoice Greedy(const mx::array& logits);

  // Rows ids [N] of a table, times scale: [N, C].
  virtual mx::array Rows(const MlxWeight& table, const mx::array& ids, float scale, mx::Dtype activations);
};

// x [N, heads, D] with the first dims of each head rotated, half against half, by the row's angles [N, dims].
mx::array Turn(const mx::array& x, const mx::array& angles);
mx::array RmsNorm(const mx::array& x, const MlxNorm& norm, int groups);  // [N, C]
mx::array Activate(const mx::array& x, Activation activation);
mx::array SoftCap(const mx::array& x, float cap);  // cap * tanh(x / cap)

}  // namespace pd
