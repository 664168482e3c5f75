#include "engine/overlap.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace pd {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kStart = 8;  // tokens of a text that are not watched

// One text: written by the engine's thread, read when it has ended, but for `count`.
struct Stream {
  std::vector<Clock::time_point> tokens;
  std::atomic<int> count = 0;
  std::future<RequestResult> end;
  RequestId id = 0;
};

// Tokens of all texts in [from, to).
StreamRates RatesIn(const std::vector<std::unique_ptr<Stream>>& streams, Clock::time_point from,
                    Clock::time_point to) {
  StreamRates rates;
  double tokens = 0;
  for (const auto& stream : streams) {
    const auto begin = std::ranges::lower_bound(stream->tokens, from),
               end = std::ranges::lower_bound(stream->tokens, to);
    tokens += double(end - begin);
    // The gap that a token ends counts where the token is, the first one too.
    for (auto at = begin; at != end; ++at)
      if (at != stream->tokens.begin()) rates.gaps_ms.push_back(Milliseconds(*at - *(at - 1)).count());
  }
  std::ranges::sort(rates.gaps_ms);
  rates.tokens_per_s = tokens / std::max(Milliseconds(to - from).count() / 1000, 1e-9);
  return rates;
}

std::unique_ptr<Stream> Start(Engine& engine, Request request) {
  auto stream = std::make_unique<Stream>();
  const auto end = std::make_shared<std::promise<RequestResult>>();
  stream->end = end->get_future();
  stream->tokens.reserve(size_t(std::min(request.max_tokens, 1 << 16)));
  stream->id = engine.Submit(std::move(request), {[s = stream.get()](const Sampled&) {
                                                    s->tokens.push_back(Clock::now());
                                                    ++s->count;
                                                    return true;
                                                  },
                                                  [end](RequestResult r) { end->set_value(std::move(r)); }});
  return stream;
}

// Until `done`, or a text has ended.
void Wait(const std::vector<std::unique_ptr<Stream>>& streams, const std::function<bool()>& done,
          const std::function<void()>& keep_going) {
  while (!done()) {
    keep_going();
    for (const auto& stream : streams)
      if (stream->end.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
        const RequestResult result = stream->end.get();
        throw Fail(result.finish == FinishReason::kError ? result.failure.kind : ErrorKind::kBadRequest,
                   "a text ended before the measurement did: {}",
                   result.finish == FinishReason::kError ? result.failure.message
                                                         : "the model's context is too short for it");
      }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

OverlapResult MeasureOverlap(Engine& engine, const OverlapOptions& options,
                             const std::function<void()>& keep_going) {
  const ModelSpec& spec = engine.spec();
  std::vector<TokenId> prompt(size_t(std::max(options.prompt, 1)));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = TokenId((i * 31 + 7) % size_t(spec.vocab));
  const Request reads{.prompt = prompt, .max_tokens = 1, .prefill_chunk = options.chunk};
  PlanRequest(spec, reads);  // before anything runs

  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < options.streams; ++i)
    streams.push_back(Start(engine, {.prompt = {TokenId(i % spec.vocab), TokenId((i * 7 + 3) % spec.vocab)},
                                     .max_tokens = spec.max_context,
                                     .prefill_chunk = options.chunk}));
  const auto pause = [&](double ms) {
    const auto until = Clock::now() + std::chrono::microseconds(int64_t(ms * 1000));
    Wait(streams, [&] { return Clock::now() >= until; }, keep_going);
  };
  const auto started = [&] {
    return std::ranges::all_of(streams, [](const auto& s) { return s->count >= kStart; });
  };
  Wait(streams, started, keep_going);

  const auto begin = Clock::now();
  pause(options.alone_ms);
  const auto asked = Clock::now();
  const auto reader = Start(engine, reads);
  Wait(
      streams, [&] { return reader->end.wait_for(std::chrono::seconds(0)) == std::future_status::ready; },
      keep_going);
  const auto answered = Clock::now();
  pause(options.alone_ms);
  const auto end = Clock::now();

  OverlapResult result;
  const RequestResult read = reader->end.get();
  if (read.finish == FinishReason::kError) throw Error(read.failure.kind, read.failure.message);
  for (const auto& stream : streams) engine.Cancel(stream->id);
  for (const auto& stream : streams) stream->end.get();

  // Contexts grow meanwhile: alone is the mean of before and after.
  const StreamRates before = RatesIn(streams, begin, asked), after = RatesIn(streams, answered, end);
  result.alone.tokens_per_s = (before.tokens_per_s + after.tokens_per_s) / 2;
  result.alone.gaps_ms = before.gaps_ms;
  result.alone.gaps_ms.insert(result.alone.gaps_ms.end(), after.gaps_ms.begin(), after.gaps_ms.end());
  std::ranges::sort(result.alone.gaps_ms);
  result.beside = RatesIn(streams, asked, answered);
  result.first_token_ms = read.stats.first_token_ms;
  result.prompt = read.stats;
  if (result.alone.tokens_per_s > 0)
    result.decode_ratio = result.beside.tokens_per_s / result.alone.tokens_per_s;
  return result;
}

}  // namespace pd
