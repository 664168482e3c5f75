#include "reference/count_ops.h"

#include <numeric>
#include <vector>

namespace pd {

Cost CostOf(const ModelSpec& spec, int first, int count, int logits) {
  Weights<Shape> shapes;
  MakeRoom(spec, shapes);
  ForEachWeight(spec, shapes, [](Shape& shape, const WeightInfo& info) { shape = info.shape; });
  const std::vector<TokenId> ids(size_t(count), 0);
  std::vector<int32_t> pos(size_t(count), 0), wanted(size_t(logits), 0);
  std::iota(pos.begin(), pos.end(), first);
  std::iota(wanted.begin(), wanted.end(), count - logits);
  CountOps ops;
  Forward(ops, spec, shapes, {ids, pos, ids, wanted});
  return {ops.flops, ops.weight_values, ops.kv_values};
}

}  // namespace pd
