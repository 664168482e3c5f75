// Attention of a step's rows over the KV cache.
//
// Keys come in blocks of kKeyBlock, aligned to absolute positions. For each row, head and block:
//   s_j = sum over d, ascending, of (q_d * scale) * k_jd        soft-capped if the layer says so
//   m = max s_j, p_j = exp(s_j - m), l = Sum16(p_j), o_d = sum over j, ascending, of p_j * v_jd
// over the keys that the row sees. Blocks join in ascending order by the running maximum:
//   m' = max(M, m), a = exp(M - m'), b = exp(m - m');  L = fma(L, a, l * b), O = fma(O, a, o * b)
// Keys and values are in the cache's 16 bits, including those of the running step. So a row's result depends
// only on its query and the cache, not on the rest of the step or on which thread computes which block.
#pragma once
#include <span>
#include <vector>

#include "cpu/arena.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kv_cache.h"
#include "cpu/pages.h"
#include "cpu/pool.h"
#include "model/rows.h"

namespace pd::cpu {

// Consecutive rows of a step that continue one slot.
struct RowRun {
  const KvSlot* slot;
  int row, count, position;  // the first row and its position
};

// Owned by a backend, used by its thread. Keeps scratch memory, so that a step allocates nothing once warm.
class Attention {
 public:
  Attention(const Kernels& kernels, ThreadPool& pool, const ModelSpec& spec);

  // q [rows, H*D] becomes the attended values [rows, H*D].
  void Attend(int layer, const AttentionSpec& a, Matrix& q, std::span<const RowRun> runs);

 private:
  // A thread's unit of work: some rows of one run, one KV head with the query heads that share it, some key
  // blocks.
  struct Unit {
    const RowRun* run;
    int row, count;  // rows within the step
    int head;        // KV head
    int block_begin, block_end;
    // Its partial result, [queries] max, [queries] sum, [queries][D in tiles] out, if other units have other
    // blocks of the same rows; nullptr if the unit computes the whole result.
    float* partial;
    int position() const { return run->position + row - run->row; }  // of the first row
  };
  struct Range;
  // One thread's working memory. Q: query rows of a unit times heads that share a KV head.
  struct Scratch {
    std::vector<float> query, scores;   // [Q][D], [Q][kKeyBlock]
    std::vector<float> keys, values;    // as pack_keys and pack_values write them
    std::vector<float> out, block_out;  // [Q][D in tiles]
    std::vector<float> max, sum, block_max, block_sum, keep, weight;  // [Q]
  };

  void MakeUnits(const AttentionSpec& a, std::span<const RowRun> runs);
  // `next`: the thread's next unit, whose keys are prefetched meanwhile; or nullptr.
  void Compute(const Unit& unit, const Unit* next, int layer, const AttentionSpec& a, Matrix& q,
               Scratch& s) const;
  void Block(const Unit& unit, int block, std::span<const uint16_t> next_keys, int layer,
             const AttentionSpec& a, Scratch& s) const;
  void JoinPartials(const AttentionSpec& a, Matrix& q);
  void Finish(const Unit& unit, const AttentionSpec& a, const float* sum, const float* out, Matrix& q) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;  // [threads]
  std::vector<Unit> units_;
  bool split_ = false;  // blocks of keys are separate units: each has one row and a partial result
  Pages partials_;      // address space for the maximum, memory only where used
};

}  // namespace pd::cpu
