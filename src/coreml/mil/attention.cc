// The attention forms of MilOps. q is [1, H, D, T]; k and v are [1, K, D, past + T], the past first. Every
// form returns the heads' outputs as [1, H, D, T] or a view with the same order of elements. q includes the
// score scale.
#include <algorithm>

#include "base/error.h"
#include "coreml/mil/mil_ops.h"

namespace pd::mil {
namespace {

// Above this size, scores of one query head group are computed in tiles of query rows: without tiles they
// were seen three times slower.
constexpr int64_t kMostScoreBytes = 16 << 20;
constexpr int64_t kLeastTile = 128, kMostTile = 256;

int64_t TileRows(int64_t heads, int64_t rows, int64_t keys) {
  if (heads * rows * keys * 2 <= kMostScoreBytes || rows <= kLeastTile) return rows;
  return heads * kMostTile * keys * 2 <= kMostScoreBytes ? kMostTile : kLeastTile;
}

}  // namespace

MilOps::Tensor MilOps::Attend(int layer, const AttentionSpec& a, const Tensor& q, const Rows&) {
  const auto cached = cached_.find(layer);
  PD_CHECK(cached != cached_.end());
  const std::string k = WithPast(a, PastKeys(layer), cached->second.keys);
  const std::string v = WithPast(a, PastValues(layer), cached->second.values);
  cached_.erase(cached);
  switch (options_.attention) {
    case AttentionForm::kHeads:
      return {AttendHeads(a, q, k, v), q.channels, a.heads};
    case AttentionForm::kChannels:
      return {AttendChannels(a, q, k, v), q.channels, 0};
    case AttentionForm::kGrouped:
      break;
  }
  return {AttendGrouped(a, q, k, v), q.channels, a.heads};
}

// (1, K*D, 1, past + T): the cache's contents, then this chunk.
std::string MilOps::WithPast(const AttentionSpec& a, const std::string& past, const Tensor& fresh) {
  const int width = PastWidth(a, shape_.history);
  if (width == 0) return fresh.name;
  return Concat({builder_.Input(past, {DataType::kF16, {1, a.kv_width(), 1, width}}), fresh.name}, 3);
}

std::string MilOps::Mask(const AttentionSpec& a) {
  const MaskInput& mask = interface_.MaskOf(a);
  const int64_t rows = shape_.tokens, keys = mask.past + shape_.tokens;
  const Dims shape =
      options_.attention == AttentionForm::kChannels ? Dims{1, keys, 1, rows} : Dims{1, 1, rows, keys};
  return builder_.Input(mask.name, {DataType::kF16, shape});
}

std::string MilOps::Probabilities(const AttentionSpec& a, std::string scores, const std::string& mask,
                                  int axis) {
  if (a.soft_cap) {
    const std::string bent = builder_.Op("tanh", {{"x", Scaled(scores, 1 / *a.soft_cap)}});
    scores = Scaled(bent, *a.soft_cap);
  }
  return builder_.Op("softmax", {{"x", Binary("add", scores, mask)}, {"axis", Scalar(axis)}});
}

// Runs `attend` on tiles of query rows and joins the results, both on the last axis.
template <class F>
std::string MilOps::Tiled(const std::string& q, const std::string& mask, size_t mask_axis, int64_t heads,
                          F attend) {
  const int64_t rows = shape_.tokens, keys = Elements(builder_.TypeOf(mask)) / rows;
  const int64_t tile = TileRows(heads, rows, keys);
  std::vector<std::string> tiles;
  for (int64_t at = 0; at < rows; at += tile) {
    const int64_t count = std::min(tile, rows - at);
    const std::string some = Slice(q, 3, at, count);
    const std::string seen = Slice(mask, mask_axis, at, count);
    tiles.push_back(attend(some, seen));
  }
  return Concat(tiles, 3);
}

std::string MilOps::AttendHeads(const AttentionSpec& a, const Tensor& q, const std::string& k,
                                const std::string& v) {
  const int group = a.heads / a.kv_heads;
  const std::string keys = View({k, a.kv_width(), 0}, a.kv_heads),
                    values = View({v, a.kv_width(), 0}, a.kv_heads);
  const std::string mask = Mask(a), queries = View(q, a.heads);
  std::vector<std::string> outputs;
  for (int j = 0; j < a.kv_heads; ++j) {
    const std::string qj = Slice(queries, 1, int64_t(j) * group, group);  // [1, G, D, T]
    const std::string kj = Slice(keys, 1, j, 1), vj = Slice(values, 1, j, 1);
    outputs.push_back(Tiled(qj, mask, 2, group, [&](const std::string& some, const std::string& seen) {
      const std::string scores = MatMul(some, kj, true, false);  // [1, G, rows, keys]
      return MatMul(vj, Probabilities(a, scores, seen, 3), false, true);
    }));
  }
  return Concat(outputs, 1);
}

std::string MilOps::AttendGrouped(const AttentionSpec& a, const Tensor& q, const std::string& k,
                                  const std::string& v) {
  const int group = a.heads / a.kv_heads;
  const auto batch = [&](const std::string& x,
                         int64_t heads) {  // [K, heads, D, n]: the same order of elements
    const Dims& shape = builder_.ShapeOf(x);
    const std::vector<int32_t> wanted = {a.kv_heads, int32_t(heads), a.head_dim, int32_t(shape.back())};
    return builder_.Op("reshape", {{"x", x}, {"shape", Vector(wanted)}});
  };
  const std::string grouped = batch(q.name, group), keys = batch(k, 1), values = batch(v, 1);
  const std::string y =
      Tiled(grouped, Mask(a), 2, a.heads, [&](const std::string& some, const std::string& seen) {
        const std::string scores = MatMul(some, keys, true, false);  // [K, G, rows, keys]
        return MatMul(values, Probabilities(a, scores, seen, 3), false, true);
      });
  const std::vector<int32_t> wanted = {1, a.heads, a.head_dim, shape_.tokens};
  return builder_.Op("reshape", {{"x", y}, {"shape", Vector(wanted)}});
}

// Scores as channels: keys are transposed once per KV head, queries and values are not.
std::string MilOps::AttendChannels(const AttentionSpec& a, const Tensor& q, const std::string& k,
                                   const std::string& v) {
  const int group = a.heads / a.kv_heads, d = a.head_dim;
  const auto einsum = [&](const std::string& x, const std::string& y, const char* equation) {
    return builder_.Op("einsum",
                       {{"values", std::vector<std::string>{x, y}}, {"equation", Scalar(equation)}});
  };
  const std::string queries = View(q, 0), mask = Mask(a);
  std::vector<std::string> outputs;
  for (int j = 0; j < a.kv_heads; ++j) {
    const std::string kj = builder_.Op("transpose", {{"x", Slice(k, 1, int64_t(j) * d, d)},
                                                     {"perm", Vector(std::vector<int32_t>{0, 3, 2, 1})}});
    const std::string vj = Slice(v, 1, int64_t(j) * d, d);  // (1, D, 1, keys)
    for (int h = j * group; h < (j + 1) * group; ++h)
      outputs.push_back(Tiled(Slice(queries, 1, int64_t(h) * d, d), mask, 3, 1,
                              [&](const std::string& some, const std::string& seen) {
                                const std::string scores =
                                    einsum(kj, some, "bkhc,bchq->bkhq");  // (1, keys, 1, rows)
                                return einsum(vj, Probabilities(a, scores, seen, 1), "bchk,bkhq->bchq");
                              }));
  }
  return Concat(outputs, 1);
}

}  // namespace pd::mil
