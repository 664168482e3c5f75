// Two prompts at once on one model: while one text is written on the decode lane, the other prompt is read on
// the prefill lane. A server is this with more threads and more care.
//
//   two_prompts MODEL PROMPT PROMPT
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "base/cores.h"
#include "base/error.h"
#include "formats/model_source.h"
#include "open/open.h"
#include "serving/queue.h"
#include "session/open_engine.h"
#include "session/text_codec.h"
#include "session/text_engine.h"

namespace {

// What the engine's thread passes to main: it must not wait, so it only puts events into a queue.
struct Event {
  int prompt = 0;
  std::variant<std::string, pd::TextAnswer> what;  // more text, or the end
};

int Answer(const std::string& path, const std::string (&prompts)[2]) {
  // A model's files: its spec and where its weights lie, its tokenizer and chat template. Nothing is loaded
  // yet.
  pd::ModelSource model = pd::OpenModel(path);
  const auto codec = std::make_shared<const pd::TextCodec>(model);

  // Two lanes need two devices. The processors in halves are two; a GPU and the CPU would be others.
  pd::EngineSettings settings;
  settings.tokens = 512;     // of a prompt and its text: so much memory must be there
  settings.max_running = 2;  // requests at a time
  if (const int processors = int(pd::AvailableCores().size()); processors > 1) {
    settings.devices.prefill = settings.devices.decode = pd::kDefaultDevice;
    settings.devices.prefill_threads = processors / 2;
  }
  pd::TextEngine engine(codec, pd::OpenEngine(model, settings));

  // Both are submitted before either is answered. Submit returns at once.
  const auto events = std::make_shared<pd::Queue<Event>>();
  for (int i = 0; i < 2; ++i) {
    pd::TextRequest request{codec->Chat(prompts[i])};
    request.settings.max_tokens = 48;
    engine.Submit(std::move(request),
                  {.delta =
                       [events, i](const pd::TextDelta& delta) {
                         events->Push({i, delta.text});
                         return true;  // false would end the text here
                       },
                   .end = [events, i](pd::TextAnswer answer) { events->Push({i, std::move(answer)}); }});
  }

  // Text of both arrives in turns; a server would pass each piece on to whoever asked.
  std::map<int, pd::TextAnswer> answers;
  std::string order;
  while (answers.size() < 2) {
    Event event = events->Pop();
    if (auto* answer = std::get_if<pd::TextAnswer>(&event.what)) {
      answers[event.prompt] = std::move(*answer);
    } else if (!std::get<std::string>(event.what).empty()) {
      order += char('1' + event.prompt);
    }
  }

  for (const auto& [i, answer] : answers) {
    const pd::RequestResult& result = answer.result;
    if (result.finish == pd::FinishReason::kError) {
      fmt::print(stderr, "two_prompts: {}\n", result.failure.message);
      return 1;
    }
    fmt::print("> {}\n{}\n\n", prompts[i], answer.text);
  }
  const int lanes = engine.engine().lanes();
  fmt::print("on {} lane{}, in this order: {}\n", lanes, lanes == 1 ? "" : "s", order);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: two_prompts MODEL PROMPT PROMPT\n");
    return 2;
  }
  try {
    return Answer(argv[1], {argv[2], argv[3]});
  } catch (const std::exception& e) {
    fmt::print(stderr, "two_prompts: {}\n", e.what());
    return 1;
  }
}
