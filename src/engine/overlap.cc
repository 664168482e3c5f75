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
  std::promise<RequestResult> ended;
  std::future<RequestResult> end = ended.get_future();
  std::atomic<RequestId> id = 0;
  bool goes_on = false;  // when it is as long as it may be, by another like it
  std::atomic<bool> stopped = false;
};

// Tokens of all texts in [from, to).
StreamRates RatesIn(const std::vector<std::shared_ptr<Stream>>& streams, Clock::time_point from,
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

void Submit(Engine& engine, const std::shared_ptr<Stream>& stream, const Request& request);

// False when the engine is being shut down.
bool GoOn(Engine& engine, const std::shared_ptr<Stream>& stream, const Request& request) {
  try {
    Submit(engine, stream, request);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Submit(Engine& engine, const std::shared_ptr<Stream>& stream, const Request& request) {
  stream->id = engine.Submit(
      request, {[stream](const Sampled&) {
                  stream->tokens.push_back(Clock::now());
                  ++stream->count;
                  return true;
                },
                [&engine, stream, request](RequestResult result) {
                  const bool full = result.finish == FinishReason::kLength;
                  if (full && stream->goes_on && !stream->stopped && GoOn(engine, stream, request)) return;
                  stream->ended.set_value(std::move(result));
                }});
}

std::shared_ptr<Stream> Start(Engine& engine, const Request& request, bool goes_on) {
  auto stream = std::make_shared<Stream>();
  stream->goes_on = goes_on;
  Submit(engine, stream, request);
  return stream;
}

void Stop(Engine& engine, Stream& stream) {
  stream.stopped = true;
  do {
    engine.Cancel(stream.id);  // it may just have gone on under another
  } while (stream.end.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready);
}

// Until `done`, or a text has ended.
void Wait(const std::vector<std::shared_ptr<Stream>>& streams, const std::function<bool()>& done,
          const std::function<void()>& keep_going) {
  while (!done()) {
    keep_going();
    for (const auto& stream : streams)
      if (stream->end.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
        const RequestResult result = stream->end.get();
        throw Fail(result.failure.kind, "a text ended before the measurement did: {}",
                   result.failure.message);
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

  std::vector<std::shared_ptr<Stream>> streams;
  for (int i = 0; i < options.streams; ++i)
    streams.push_back(Start(engine,
                            {.prompt = {TokenId(i % spec.vocab), TokenId((i * 7 + 3) % spec.vocab)},
                             .max_tokens = std::min(options.text, spec.max_context - 1),
                             .prefill_chunk = options.chunk},
                            true));
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
  OverlapResult result;
  for (const auto& stream : streams) result.context += double(stream->count) / double(streams.size());
  const auto asked = Clock::now();
  const auto reader = Start(engine, reads, false);
  Wait(
      streams, [&] { return reader->end.wait_for(std::chrono::seconds(0)) == std::future_status::ready; },
      keep_going);
  const auto answered = Clock::now();
  pause(options.alone_ms);
  const auto end = Clock::now();

  result.request = reader->id;
  const RequestResult read = reader->end.get();
  if (read.finish == FinishReason::kError) throw Error(read.failure.kind, read.failure.message);
  for (const auto& stream : streams) Stop(engine, *stream);

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
