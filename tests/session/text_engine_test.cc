#include "session/text_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <future>
#include <thread>

#include "base/error.h"
#include "session/open_engine.h"
#include "tests/expect_error.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";

ModelSource& Model() {
  static ModelSource model = OpenModel(kTiny);
  return model;
}

std::shared_ptr<const TextCodec> Codec() {
  static const auto codec = std::make_shared<const TextCodec>(Model());
  return codec;
}

std::unique_ptr<TextEngine> OpenTiny(int running = 8) {
  EngineSettings settings;
  settings.tokens = 100;
  settings.max_running = running;
  settings.devices.threads = 2;
  return std::make_unique<TextEngine>(Codec(), OpenEngine(Model(), settings));
}

// The tiny model's noise, without its end tokens.
TextRequest Noise(const std::string& prompt, int tokens, uint64_t seed) {
  TextRequest request{Codec()->Plain(prompt)};
  request.settings.max_tokens = tokens;
  request.settings.sample.temperature = 1;
  request.settings.seed = seed;
  request.settings.bias = {{0, -100.f}, {2, -100.f}};
  return request;
}

struct Heard {
  std::string text;  // deltas joined
  std::vector<TokenId> tokens;
  TextAnswer answer;
};

std::future<Heard> Start(TextEngine& engine, TextRequest request, RequestId* id = nullptr) {
  const auto heard = std::make_shared<Heard>();
  const auto end = std::make_shared<std::promise<Heard>>();
  auto future = end->get_future();
  const RequestId got = engine.Submit(std::move(request), {[heard](const TextDelta& delta) {
                                                             heard->text += delta.text;
                                                             if (delta.token)
                                                               heard->tokens.push_back(delta.token->token);
                                                             return true;
                                                           },
                                                           [heard, end](TextAnswer answer) {
                                                             heard->answer = std::move(answer);
                                                             end->set_value(std::move(*heard));
                                                           }});
  if (id) *id = got;
  return future;
}

TEST(TextEngine, ManyAtOnceSayWhatEachSaysAlone) {
  const auto engine = OpenTiny();
  std::vector<std::future<Heard>> together;
  for (uint64_t i = 0; i < 8; ++i)
    together.push_back(Start(*engine, Noise(std::string(1 + i * 5, 'a'), 20 + int(i), i)));
  for (uint64_t i = 0; i < 8; ++i) {
    const Heard heard = together[i].get();
    EXPECT_EQ(heard.text, heard.answer.text);
    EXPECT_EQ(heard.tokens, heard.answer.result.tokens);
    EXPECT_EQ(heard.answer.seed, i);
    const TextAnswer alone = engine->Generate(Noise(std::string(1 + i * 5, 'a'), 20 + int(i), i), nullptr);
    EXPECT_EQ(alone.text, heard.text);
    EXPECT_EQ(alone.result.tokens, heard.tokens);
  }
}

TEST(TextEngine, DeltasAreWholeCharacters) {
  const auto engine = OpenTiny();
  bool split = false;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::string text;
    TextRequest request = Noise("x", 200, seed);
    request.settings.sample.temperature = 3;
    const TextAnswer answer = engine->Generate(std::move(request), [&](const TextDelta& delta) {
      if (!delta.text.empty()) {
        EXPECT_NE(uint8_t(delta.text.front()) & 0xC0, 0x80) << "begins inside a character";
      }
      split = split || (delta.token && delta.text.empty());
      text += delta.text;
      return true;
    });
    EXPECT_EQ(text, answer.text);
  }
  EXPECT_TRUE(split) << "no character was split over tokens: the test shows nothing";
}

// The last `count` bytes of a text if they are letters; the noise of some seed ends with such.
std::string LastLetters(const std::string& text, size_t count) {
  const std::string last = text.substr(text.size() - std::min(count, text.size()));
  return std::ranges::all_of(last, [](char c) { return std::isalpha(static_cast<unsigned char>(c)); }) ? last
                                                                                                       : "";
}

TEST(TextEngine, AStopStringEndsTheTextBeforeIt) {
  const auto engine = OpenTiny();
  int tried = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::string whole = engine->Generate(Noise("Hello", 60, seed), nullptr).text;
    const std::string letters = LastLetters(whole, 2);
    if (letters.empty()) continue;
    ++tried;
    TextRequest request = Noise("Hello", 60, seed);
    request.settings.stops = {"never to be seen", letters};
    std::string shown;
    const TextAnswer answer = engine->Generate(std::move(request), [&](const TextDelta& delta) {
      shown += delta.text;
      return true;
    });
    EXPECT_EQ(answer.text, whole.substr(0, whole.find(letters)));
    EXPECT_EQ(shown, answer.text);
    EXPECT_EQ(answer.stop, 1u);
    EXPECT_EQ(answer.result.finish, FinishReason::kStop);

    // What might have become one is text after all when the text ends.
    request = Noise("Hello", 60, seed);
    request.settings.stops = {letters + "?"};
    std::optional<std::string> last;
    const TextAnswer held = engine->Generate(std::move(request), [&](const TextDelta& delta) {
      if (!delta.token) last = delta.text;
      return true;
    });
    if (held.stop) continue;  // it did become one, earlier in the text
    EXPECT_EQ(held.text, whole);
    EXPECT_EQ(last, letters);
  }
  EXPECT_GT(tried, 0);
  EXPECT_THROW(engine->Submit({Codec()->Plain("x"), {.stops = {""}}}, {}), Error);
}

TEST(TextEngine, EndsWhenItsReaderHasEnough) {
  const auto engine = OpenTiny();
  int tokens = 0;
  const TextAnswer answer =
      engine->Generate(Noise("Hello", 400, 1), [&](const TextDelta&) { return ++tokens < 3; });
  EXPECT_EQ(tokens, 3);
  EXPECT_EQ(answer.result.finish, FinishReason::kCancelled);
  EXPECT_THROW(engine->Generate(Noise("Hello", 400, 1),
                                [](const TextDelta&) -> bool { throw std::runtime_error("full disk"); }),
               std::runtime_error);
  std::atomic<bool> cancel = false;
  const TextAnswer cancelled = engine->Generate(
      Noise("Hello", 400, 1),
      [&](const TextDelta&) {
        cancel = true;
        return true;
      },
      &cancel);
  EXPECT_EQ(cancelled.result.finish, FinishReason::kCancelled);

  // A sink's own no is the end of the text, and what it throws is the request's error.
  std::promise<TextAnswer> end;
  engine->Submit(Noise("Hello", 400, 1), {[](const TextDelta&) { return false; },
                                          [&](TextAnswer a) { end.set_value(std::move(a)); }});
  EXPECT_EQ(end.get_future().get().result.finish, FinishReason::kStop);
  std::promise<TextAnswer> error;
  engine->Submit(Noise("Hello", 400, 1),
                 {[](const TextDelta&) -> bool { throw Error(ErrorKind::kDevice, "lost"); },
                  [&](TextAnswer a) { error.set_value(std::move(a)); }});
  const TextAnswer failed = error.get_future().get();
  EXPECT_EQ(failed.result.finish, FinishReason::kError);
  EXPECT_EQ(failed.result.failure.message, "lost");
}

TEST(TextEngine, CancelsFromAnyThread) {
  const auto engine = OpenTiny(/*running=*/2);
  std::vector<RequestId> ids(6);
  std::vector<std::future<Heard>> texts;
  for (size_t i = 0; i < ids.size(); ++i) texts.push_back(Start(*engine, Noise("Hello", 400, i), &ids[i]));
  std::thread([&] {
    for (const RequestId id : ids) engine->Cancel(id);
  }).join();
  for (auto& text : texts) EXPECT_EQ(text.get().answer.result.finish, FinishReason::kCancelled);
  engine->Stop(/*finish=*/true);
  ExpectError(ErrorKind::kCancelled, {"shutting down"}, [&] { engine->Submit(Noise("Hello", 1, 1), {}); });
}

TEST(TextEngine, DrawsASeedOnlyWhenItMatters) {
  const auto engine = OpenTiny();
  TextRequest request{Codec()->Plain("Hello"), {.max_tokens = 5, .seed = 7}};
  EXPECT_FALSE(engine->Generate(request, nullptr).seed);  // greedy
  request.settings.sample.temperature = 1;
  EXPECT_EQ(engine->Generate(request, nullptr).seed, 7u);
  request.settings.seed.reset();
  const TextAnswer drawn = engine->Generate(request, nullptr);
  ASSERT_TRUE(drawn.seed);
  request.settings.seed = drawn.seed;
  EXPECT_EQ(engine->Generate(request, nullptr).text, drawn.text);
}

TEST(TextCodec, ChatsAndContinues) {
  const Prompt chat = Codec()->Chat("Hello", "Be brief.");
  EXPECT_FALSE(chat.continues);
  const std::string text = Codec()->tokenizer()->Decode(chat.ids, /*skip_special=*/false);
  EXPECT_NE(text.find("Be brief."), std::string::npos) << text;
  EXPECT_NE(text.find("Hello"), std::string::npos) << text;
  const Prompt plain = Codec()->Plain("Hello");
  EXPECT_TRUE(plain.continues);
  EXPECT_LT(plain.ids.size(), chat.ids.size());
}

TEST(TextCodec, ABadTemplateHurtsOnlyChats) {
  const TempFolder folder;
  CopyModel("llama-base", folder.path());
  for (const char* source : {"", "{% if %}"}) {
    std::filesystem::remove(folder / "tokenizer_config.json");
    if (*source) folder.Write("chat_template.jinja", source);
    const TextCodec codec(OpenModel(folder.path()));
    EXPECT_FALSE(codec.Plain("Hello").ids.empty());
    EXPECT_EQ(codec.has_chat_template(), *source != 0);
    ExpectError(ErrorKind::kUnsupported, {"template"}, [&] { codec.Chat("Hello"); });
  }
}

}  // namespace
}  // namespace pd::test
