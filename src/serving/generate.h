// Runs one request and waits for its end.
#pragma once
#include <atomic>
#include <functional>

#include "serving/engine.h"

namespace pd {

// EventSink::token: called on the engine's thread with each token; false ends the request with kStop.
using TokenSink = std::function<bool(const Sampled&)>;

// Ends with kCancelled soon after *cancel becomes true; `cancel` may be nullptr. Throws what Engine::Submit
// throws, and the failure of a request that ended with kError as an Error.
RequestResult Generate(Engine& engine, Request request, TokenSink sink,
                       const std::atomic<bool>* cancel = nullptr);

}  // namespace pd
