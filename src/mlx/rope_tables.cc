#include "mlx/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace pd {
namespace {

constexpr int kFirstPositions = 1024;  // of a new table; it then doubles

// Rows [from, to) of a table.
mx::array MakeAngles(const RopeSpec& rope, const RopeVariant& variant, int from, int to) {
  const RopeFrequencies f = Frequencies(rope, variant);
  const size_t half = f.inverse.size();
  std::vector<float> rows(size_t(to - from) * 2 * half);
  for (int p = from; p < to; ++p) {
    float* row = &rows[size_t(p - from) * 2 * half];
    for (size_t i = 0; i < half; ++i) {
      const double angle = p * f.inverse[i];
      row[i] = float(f.scale * std::cos(angle));
      row[half + i] = float(f.scale * std::sin(angle));
    }
  }
  return mx::array(rows.begin(), {to - from, int(2 * half)}, mx::float32);
}

}  // namespace

RopeTables::RopeTables(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const std::optional<RopeSpec>& rope = AttentionOf(layer).rope;
    if (!rope) continue;
    const auto same = [&](const Rotation& r) { return r.rope == *rope; };
    if (std::none_of(rotations_.begin(), rotations_.end(), same)) rotations_.push_back({*rope, {}, {}});
  }
}

void RopeTables::Begin(std::span<const int32_t> pos, std::span<const RopeVariant> variants,
                       const mx::array& pos_array) {
  for (Rotation& rotation : rotations_) rotation.angles.reset();
  pos_ = pos_array;
  positions_ = *std::max_element(pos.begin(), pos.end()) + 1;
  const bool mixed =
      std::any_of(variants.begin(), variants.end(), [&](auto& v) { return !(v == variants[0]); });
  variants_.assign(variants.begin(), mixed ? variants.end() : variants.begin() + 1);
  // Steps that mix variants are rare: their rows are then gathered into a table of their own.
  angle_ = mixed ? mx::arange(0, int(pos.size()), mx::int32) : pos_array;
}

const mx::array& RopeTables::TableFor(Rotation& rotation, const RopeVariant& variant, int positions) {
  auto it = std::find_if(rotation.tables.begin(), rotation.tables.end(),
                         [&](const Table& t) { return t.variant == variant; });
  if (it == rotation.tables.end()) it = rotation.tables.insert(it, Table{variant, {}});
  const int have = it->angles ? it->angles->shape(0) : 0;
  if (have < positions) {
    int want = std::max(kFirstPositions, 2 * have);
    while (want < positions) want *= 2;
    const mx::array more = MakeAngles(rotation.rope, variant, have, want);
    it->angles = it->angles ? mx::concatenate({*it->angles, more}, 0) : more;
    it->angles->eval();
  }
  return *it->angles;
}

RopeTables::Rotation& RopeTables::Find(const RopeSpec& rope) {
  const auto it = std::find_if(rotations_.begin(), rotations_.end(), [&](auto& r) { return r.rope == rope; });
  PD_CHECK(it != rotations_.end());
  return *it;
}

mx::array RopeTables::Range(const RopeSpec& rope, const RopeVariant& variant, int from, int to) {
  const mx::array& table = TableFor(Find(rope), variant, to);
  return mx::slice(table, {from, 0}, {to, table.shape(1)});
}

const mx::array& RopeTables::Angles(const RopeSpec& rope) {
  Rotation& rotation = Find(rope);
  if (rotation.angles) return *rotation.angles;
  if (variants_.size() == 1) return rotation.angles.emplace(TableFor(rotation, variants_[0], positions_));
  std::vector<mx::array> rows;
  for (size_t from = 0, to; from < variants_.size(); from = to) {
    for (to = from + 1; to < variants_.size() && variants_[to] == variants_[from];) ++to;
    rows.push_back(mx::take(TableFor(rotation, variants_[from], positions_),
                            mx::slice(pos_, {int(from)}, {int(to)}), 0));
  }
  return rotation.angles.emplace(mx::concatenate(std::move(rows), 0));
}

void RopeTables::Keep(std::span<const RopeVariant> kept) {
  for (Rotation& rotation : rotations_) {
    rotation.angles.reset();
    std::erase_if(rotation.tables, [&](const Table& t) {
      return std::none_of(kept.begin(), kept.end(), [&](auto& v) { return v == t.variant; });
    });
  }
}

}  // namespace pd
