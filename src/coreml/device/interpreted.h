// The predictor for machines without a Neural Engine: the interpreter.
#pragma once
#include <memory>

#include "coreml/device/predictor.h"
#include "cpu/pool.h"

namespace pd {

// Predictors of one factory share the pool; they and other users of the pool must take turns. Opening throws
// what ReadPackage and Interpreter throw, and kUnsupported for functions with inputs, outputs or states that
// are not fp16.
PredictorFactory InterpretedPredictors(std::shared_ptr<ThreadPool> pool);

}  // namespace pd
