// Combines the keys and values that a chunk's calls returned into one segment.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "coreml/device/predictor.h"
#include "device/chunk_plan.h"
#include "kv/segment.h"

namespace pd {

struct CallResults {
  PlannedCall call;
  HalfTensors tensors;  // new_k_N and new_v_N of every layer, (1, K*D, 1, T)
};

// kDevice: a result holds infinities or NaNs.
class NotFinite : public Error {
 public:
  explicit NotFinite(const std::string& message) : Error(ErrorKind::kDevice, message) {}
};

// A view of what the predictor returned where possible (one call, keys and values laid out alike), else a
// dense copy. Leaves out the padding of a call. Throws kDevice when a result is missing or has another shape,
// NotFinite.
KvSegment SegmentOf(const ModelSpec& spec, const KvIdentity& id, KeyForm form,
                    std::vector<CallResults> results);

}  // namespace pd
