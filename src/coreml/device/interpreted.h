// The predictor for machines without a Neural Engine: our interpreter.
#pragma once
#include <memory>

#include "coreml/device/predictor.h"
#include "cpu/pool.h"

namespace pd {

// Predictors of one factory share the pool; they and whoever else uses it must take turns. Opening throws
// what ReadPackage and Interpreter do, and kUnsupported for functions with inputs, outputs or states other
// than fp16.
PredictorFactory InterpretedPredictors(std::shared_ptr<ThreadPool> pool);

}  // namespace pd
