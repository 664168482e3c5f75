// Keys and values of a segment as arrays.
#pragma once
#include <vector>

#include "kv/segment.h"
#include "mlx/arrays.h"
#include "model/spec.h"

namespace pd {

struct MlxSegmentLayer {
  mx::array k, v;  // [1, K, count, D], in the producer's type
};

// One layer's memory in place. Metal uses it directly when it begins and ends on a page; elsewhere MLX copies
// it, one layer after the other.
std::vector<MlxSegmentLayer> WrapSegment(const ModelSpec& spec, const KvSegment& segment);

// All layers in one copy, or a few copies when they are long: for backends where any array made of host
// memory costs half a millisecond, however small (CUDA).
std::vector<MlxSegmentLayer> UploadSegment(const ModelSpec& spec, const KvSegment& segment);

}  // namespace pd
