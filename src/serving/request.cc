#include "serving/request.h"

#include <algorithm>
#include <exception>
#include <new>

#include "model/rope.h"

namespace pd {

RequestPlan PlanRequest(const ModelSpec& spec, const Request& request) {
  const int context = request.context == 0 ? spec.max_context : request.context;
  const size_t prompt = request.prompt.size();
  if (context < 1 || context > spec.max_context)
    throw Fail(ErrorKind::kBadRequest, "a context of {} tokens: the model allows 1 to {}", request.context,
               spec.max_context);
  if (prompt == 0) throw Fail(ErrorKind::kBadRequest, "the prompt is empty: give at least one token");
  if (prompt > size_t(context))
    throw Fail(ErrorKind::kBadRequest,
               "the prompt has {} tokens and the context holds {}: shorten the prompt by {} tokens", prompt,
               context, prompt - size_t(context));
  for (const TokenId id : request.prompt)
    if (id < 0 || id >= spec.vocab)
      throw Fail(ErrorKind::kBadRequest, "the prompt: {} is no token of this model, whose vocabulary has {}",
                 id, spec.vocab);
  if (request.max_tokens < 0)
    throw Fail(ErrorKind::kBadRequest, "max_tokens is {}: give 0 or more", request.max_tokens);
  if (request.prefill_chunk < 1)
    throw Fail(ErrorKind::kBadRequest, "the prefill chunk is {}: give 1 or more tokens",
               request.prefill_chunk);
  if (!(request.timeout_ms >= 0))
    throw Fail(ErrorKind::kBadRequest, "the timeout is {} ms: give 0 (none) or more", request.timeout_ms);
  SampleSpec sample = request.sample;
  sample.bias = request.bias;
  CheckSampleSpec(sample, spec.vocab);

  RequestPlan plan;
  plan.max_tokens = std::min(request.max_tokens, context - int(prompt) + 1);
  plan.capacity = std::max(int(prompt) + plan.max_tokens - 1, 1);
  plan.variant.rope = FixRope(spec, plan.capacity);
  return plan;
}

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kError:
      return "error";
  }
  return "?";
}

Failure CurrentFailure() {
  try {
    throw;
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kOutOfMemory, "out of memory: choose a smaller model or a shorter context"};
  } catch (const std::exception& e) {
    return {ErrorKind::kDevice, OneLine(e.what())};
  }
}

}  // namespace pd
