// One request from its prompt to its last token, waited for.
#pragma once
#include <atomic>
#include <functional>

#include "engine/engine.h"

namespace pd {

// Called with each token but end tokens, in order, on the engine's thread. False: enough, finish with kStop.
using TokenSink = std::function<bool(const Sampled&)>;

// Ends with kCancelled soon after *cancel becomes true (nullptr: never). Throws as Engine::Submit does, and
// what ended the request with kError: what a device or the sink threw, as an Error.
RequestResult Generate(Engine& engine, Request request, TokenSink sink,
                       const std::atomic<bool>* cancel = nullptr);

}  // namespace pd
