// Prompts in, text out: many requests at once on one model.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sample/sampler.h"
#include "serving/engine.h"
#include "session/text_codec.h"

namespace pd {

struct TextSettings {
  int max_tokens = 256;
  int context = 0;                    // tokens of prompt and text together at most; 0: what the model allows
  SampleSpec sample = {};             // its seed, bias and context are filled in
  std::optional<uint64_t> seed = {};  // nullopt: a new one each time. Without effect at temperature 0
  std::vector<std::pair<TokenId, float>> bias = {};  // added to logits
  std::vector<std::string> stops = {};               // the text ends before the first of them; none is empty
  double timeout_ms = 0;                             // these three: as in Request
  int prefill_chunk = 512;
  bool prefill_is_named = false;
};

struct TextRequest {
  Prompt prompt;
  TextSettings settings = {};
};

// One token's part of a text. `text` is whole characters and often empty: half a character and what may be
// the beginning of a stop string are held back.
struct TextDelta {
  std::optional<Sampled> token;  // nullopt: the end of the text, which had been held back
  std::string text;
};

struct TextAnswer {
  std::string text;              // all deltas joined
  std::optional<uint64_t> seed;  // that the text was drawn with; nullopt at temperature 0
  std::optional<size_t> stop;    // index in TextSettings::stops of the one that ended the text
  RequestResult result;          // with kError: `failure` says what, and `text` stands until there
};

// Called on the engine's thread, so it should only pass things on: a callback that waits holds up every
// request. May call Submit and Cancel.
struct TextSink {
  // Each delta, in order. False: enough, the text ends here with kStop. What it throws ends the request with
  // kError. May be empty.
  std::function<bool(const TextDelta&)> delta = {};
  // Once, the last call. Must not throw.
  std::function<void(TextAnswer)> end = {};
};

// Any thread may call Submit, Generate and Cancel.
class TextEngine {
 public:
  TextEngine(std::shared_ptr<const TextCodec> codec, std::unique_ptr<Engine> engine);

  // Throws kBadRequest for settings or a prompt that cannot be (PlanRequest), and kCancelled once stopped;
  // the sink is not called then. All else comes as the request's end.
  RequestId Submit(TextRequest request, TextSink sink);
  // Ends the request with kCancelled; the text until then stands. Without effect once it has ended.
  void Cancel(RequestId id) { engine_->Cancel(id); }
  // No request is accepted any more; those that are there are finished, or cancelled. Returns when every sink
  // has seen its end. One thread's, and not a sink's. The destructor calls Stop(false).
  void Stop(bool finish) { engine_->Stop(finish); }

  // Submits one request and waits for it; `show` is called on this thread, so it may take its time. False
  // from it, and `*cancel` becoming true (nullptr: never), end the request with kCancelled. Throws as Submit
  // does, what `show` throws, and what ended the request with kError.
  TextAnswer Generate(TextRequest request, const std::function<bool(const TextDelta&)>& show,
                      const std::atomic<bool>* cancel = nullptr);

  const TextCodec& codec() const { return *codec_; }
  const Engine& engine() const { return *engine_; }  // its devices and lanes

 private:
  std::shared_ptr<const TextCodec> codec_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace pd
