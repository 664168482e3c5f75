#include "serving/generate.h"

#include <chrono>
#include <future>
#include <memory>

namespace pd {

RequestResult Generate(Engine& engine, Request request, TokenSink sink, const std::atomic<bool>* cancel) {
  constexpr auto kPatience = std::chrono::milliseconds(20);          // how often `cancel` is read
  const auto end = std::make_shared<std::promise<RequestResult>>();  // set_value may outlast the wait
  std::future<RequestResult> result = end->get_future();
  const RequestId id = engine.Submit(
      std::move(request), {std::move(sink), [end](RequestResult r) { end->set_value(std::move(r)); }});
  while (result.wait_for(kPatience) != std::future_status::ready)
    if (cancel && cancel->load()) {
      engine.Cancel(id);
      break;
    }
  RequestResult ended = result.get();
  if (ended.finish == FinishReason::kError) throw Error(ended.failure.kind, ended.failure.message);
  return ended;
}

}  // namespace pd
