#include "session/text_engine.h"

#include <chrono>
#include <random>
#include <variant>

#include "base/error.h"
#include "serving/queue.h"
#include "text/text_stream.h"

namespace pd {
namespace {

// A text on its way: one for each request, on the engine's thread once it is submitted.
class Text {
 public:
  Text(const TextCodec& codec, const TextRequest& request, std::optional<uint64_t> seed, TextSink sink)
      : stream_(codec.tokenizer(), {.continues = request.prompt.continues, .stops = request.settings.stops}),
        sink_(std::move(sink)) {
    answer_.seed = seed;
  }

  bool Take(const Sampled& token) {
    const bool wanted = Say({token, stream_.Push(token.token)});
    return wanted && !stream_.stopped();
  }

  void End(RequestResult result) {
    answer_.result = std::move(result);
    if (std::string rest = stream_.Flush(); !rest.empty()) {
      try {
        Say({std::nullopt, std::move(rest)});
      } catch (...) {  // the text is whole, but its reader is not well
        answer_.result.finish = FinishReason::kError;
        answer_.result.failure = CurrentFailure();
      }
    }
    if (stream_.stopped()) answer_.stop = size_t(stream_.stop_index());
    if (sink_.end) sink_.end(std::move(answer_));
  }

 private:
  bool Say(const TextDelta& delta) {
    answer_.text += delta.text;
    return !sink_.delta || sink_.delta(delta);
  }

  TextStream stream_;
  TextSink sink_;
  TextAnswer answer_;
};

}  // namespace

TextEngine::TextEngine(std::shared_ptr<const TextCodec> codec, std::unique_ptr<Engine> engine)
    : codec_(std::move(codec)), engine_(std::move(engine)) {}

RequestId TextEngine::Submit(TextRequest request, TextSink sink) {
  TextSettings& settings = request.settings;
  std::optional<uint64_t> seed;
  if (settings.sample.temperature > 0) seed = settings.seed ? *settings.seed : std::random_device{}();
  const auto text = std::make_shared<Text>(*codec_, request, seed, std::move(sink));
  Request tokens{.prompt = std::move(request.prompt.ids),
                 .max_tokens = settings.max_tokens,
                 .end_tokens = codec_->tokenizer()->end_ids(),
                 .sample = settings.sample,
                 .bias = std::move(settings.bias),
                 .context = settings.context,
                 .prefill_chunk = settings.prefill_chunk,
                 .timeout_ms = settings.timeout_ms,
                 .prefill_is_named = settings.prefill_is_named};
  tokens.sample.seed = seed.value_or(0);
  return engine_->Submit(std::move(tokens), {[text](const Sampled& token) { return text->Take(token); },
                                             [text](RequestResult result) { text->End(std::move(result)); }});
}

TextAnswer TextEngine::Generate(TextRequest request, const std::function<bool(const TextDelta&)>& show,
                                const std::atomic<bool>* cancel) {
  constexpr auto kPatience = std::chrono::milliseconds(20);  // between looks at `cancel`
  using Message = std::variant<TextDelta, TextAnswer>;
  const auto messages = std::make_shared<Queue<Message>>();  // a Push may outlast the wait for it
  const RequestId id =
      Submit(std::move(request), {[messages](const TextDelta& delta) {
                                    messages->Push(delta);
                                    return true;
                                  },
                                  [messages](TextAnswer answer) { messages->Push(std::move(answer)); }});
  bool cancelled = false, listening = true;
  const auto stop = [&] {
    if (!std::exchange(cancelled, true)) engine_->Cancel(id);
  };
  for (;;) {
    if (cancel && cancel->load()) stop();
    std::optional<Message> message = messages->PopUntil(std::chrono::steady_clock::now() + kPatience);
    if (!message) continue;
    if (auto* answer = std::get_if<TextAnswer>(&*message)) {
      const RequestResult& result = answer->result;
      if (result.finish == FinishReason::kError) throw Error(result.failure.kind, result.failure.message);
      return std::move(*answer);
    }
    if (!listening || !show) continue;
    try {
      listening = show(std::get<TextDelta>(*message));
    } catch (...) {
      stop();
      throw;
    }
    if (!listening) stop();
  }
}

}  // namespace pd
