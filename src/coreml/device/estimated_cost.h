// What calls cost for as long as nobody has measured them.
#pragma once
#include "device/chunk_plan.h"
#include "model/spec.h"

namespace pd {

// From the operations a function does: seconds at 8 TFLOP/s, and 0.2 ms a call.
CallCost EstimatedCost(const ModelSpec& spec);

}  // namespace pd
