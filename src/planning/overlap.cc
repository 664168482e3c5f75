#include "planning/overlap.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <thread>

namespace pd {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kStart = 8;  // first tokens of a text, not measured

struct Token {
  Clock::time_point at;
  int context;  // tokens of its text, with it
};

// One text. The engine's thread writes it; others read only the atomics until it has ended.
struct Stream {
  std::vector<Token> tokens;
  std::atomic<int> count = 0;
  int context = 0;
  std::promise<RequestResult> ended;
  std::future<RequestResult> end = ended.get_future();
  std::atomic<RequestId> id = 0;
  bool goes_on = false;  // a new text starts when it reaches its limit
  std::atomic<bool> stopped = false;
};

// Tokens of all texts in [from, to).
StreamRates RatesIn(const std::vector<std::shared_ptr<Stream>>& streams, Clock::time_point from,
                    Clock::time_point to) {
  StreamRates rates;
  double tokens = 0;
  for (const auto& stream : streams) {
    const auto begin = std::ranges::lower_bound(stream->tokens, from, {}, &Token::at),
               end = std::ranges::lower_bound(stream->tokens, to, {}, &Token::at);
    tokens += double(end - begin);
    for (auto token = begin; token != end; ++token) {
      rates.context += token->context;
      // A gap belongs to the interval of the token that ends it.
      if (token != stream->tokens.begin())
        rates.gaps_ms.push_back(Milliseconds(token->at - (token - 1)->at).count());
    }
  }
  std::ranges::sort(rates.gaps_ms);
  if (tokens == 0) return rates;
  rates.context /= tokens;
  rates.tokens_per_s = tokens / std::max(Milliseconds(to - from).count() / 1000, 1e-9);
  return rates;
}

// The rates between both, interpolated to texts of `context` tokens.
StreamRates Between(const StreamRates& before, const StreamRates& after, double context) {
  StreamRates rates{0, context, before.gaps_ms};
  rates.gaps_ms.insert(rates.gaps_ms.end(), after.gaps_ms.begin(), after.gaps_ms.end());
  std::ranges::sort(rates.gaps_ms);
  const double grown = after.context - before.context;
  const double share = grown > 0 ? std::clamp((context - before.context) / grown, 0.0, 1.0) : 0.5;
  if (before.tokens_per_s > 0 && after.tokens_per_s > 0)
    rates.tokens_per_s = 1 / std::lerp(1 / before.tokens_per_s, 1 / after.tokens_per_s, share);
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
  stream->context = int(request.prompt.size());
  stream->id = engine.Submit(
      request, {[stream](const Sampled&) {
                  stream->tokens.push_back({Clock::now(), ++stream->context});
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
    engine.Cancel(stream.id);  // a new text may have started under another id
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
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // rarely: it disturbs what is measured
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
  const auto asked = Clock::now();
  const auto reader = Start(engine, reads, false);
  Wait(
      streams, [&] { return reader->end.wait_for(std::chrono::seconds(0)) == std::future_status::ready; },
      keep_going);
  pause(options.alone_ms);
  const auto end = Clock::now();

  OverlapResult result;
  result.request = reader->id;
  const RequestResult read = reader->end.get();
  if (read.finish == FinishReason::kError) throw Error(read.failure.kind, read.failure.message);
  for (const auto& stream : streams) Stop(engine, *stream);

  const auto answered = reader->tokens.front().at;
  result.beside = RatesIn(streams, asked, answered);
  result.alone =
      Between(RatesIn(streams, begin, asked), RatesIn(streams, answered, end), result.beside.context);
  result.first_token_ms = read.stats.first_token_ms;
  result.prompt = read.stats;
  if (result.alone.tokens_per_s > 0)
    result.decode_ratio = result.beside.tokens_per_s / result.alone.tokens_per_s;
  return result;
}

}  // namespace pd
