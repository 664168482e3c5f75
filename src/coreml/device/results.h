// The keys and values that a chunk's calls returned, as one segment.
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

// A view of what the predictor returned when that is possible (one call, keys and values laid out alike),
// else a dense copy. The padding of a call is left out. Throws kDevice when a result is missing or of another
// shape, NotFinite.
KvSegment SegmentOf(const ModelSpec& spec, const KvIdentity& id, KeyForm form,
                    std::vector<CallResults> results);

}  // namespace pd
