// The estimated cost of calls, used until they are measured.
#pragma once
#include "device/chunk_plan.h"
#include "model/spec.h"

namespace pd {

// From the number of operations of a function: seconds at 8 TFLOP/s, plus 0.2 ms per call.
CallCost EstimatedCost(const ModelSpec& spec);

}  // namespace pd
