// Cosines and sines for all positions and rotations in use, computed in double and kept on the device.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "mlx/arrays.h"
#include "model/rope.h"

namespace pd {

// Owned by one thread.
class RopeTables {
 public:
  explicit RopeTables(const ModelSpec& spec);

  // Prepares for a step whose row i is at pos[i] of a sequence of variants[i]. `pos_array` holds pos.
  void Begin(std::span<const int32_t> pos, std::span<const RopeVariant> variants, const mx::array& pos_array);

  // [P, dims] f32: cosines, then sines. Row Angle()[i] belongs to row i of the step.
  const mx::array& Angles(const RopeSpec& rope);
  const mx::array& Angle() const { return angle_; }  // [N] i32

  // [to - from, dims]: the same for positions [from, to) of one sequence.
  mx::array Range(const RopeSpec& rope, const RopeVariant& variant, int from, int to);

  // Frees the tables of variants that are not among `kept`.
  void Keep(std::span<const RopeVariant> kept);

 private:
  struct Table {
    RopeVariant variant;
    std::optional<mx::array> angles;  // [P, dims]
  };
  struct Rotation {
    RopeSpec rope;
    std::vector<Table> tables;
    std::optional<mx::array> angles;  // of the running step
  };

  Rotation& Find(const RopeSpec& rope);
  const mx::array& TableFor(Rotation& rotation, const RopeVariant& variant, int positions);

  std::vector<Rotation> rotations_;    // the distinct ones of the spec
  std::vector<RopeVariant> variants_;  // of the running step: one, or one per row
  mx::array pos_ = mx::array(0), angle_ = mx::array(0);
  int positions_ = 0;  // of the running step: the last position plus one
};

}  // namespace pd
