#include "serving/engine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <thread>

#include "base/files.h"
#include "serving/generate.h"
#include "tests/device_checks.h"
#include "tests/expect_error.h"
#include "tests/serving/cpu_engine.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const CpuModelForTests& Model() {
  static const CpuModelForTests model;
  return model;
}

std::future<RequestResult> Start(Engine& engine, Request request, RequestId* id = nullptr) {
  const auto end = std::make_shared<std::promise<RequestResult>>();
  auto result = end->get_future();
  const RequestId got =
      engine.Submit(std::move(request), {{}, [end](RequestResult r) { end->set_value(std::move(r)); }});
  if (id) *id = got;
  return result;
}

std::vector<TokenId> Prompt(int length, unsigned step = 7) {
  return SomeTokens(length, Model().spec().vocab, step);
}

TEST(Engine, AnswersManyAtOnce) {
  for (int lanes : {1, 2}) {
    Engine engine(Model().spec(), Model().Devices(lanes));
    EXPECT_EQ(engine.lanes(), lanes);
    std::vector<std::future<RequestResult>> results;
    std::vector<std::vector<TokenId>> prompts;
    for (int i = 0; i < 12; ++i) {
      prompts.push_back(Prompt(1 + 37 * i, unsigned(5 + i)));
      results.push_back(Start(engine, {.prompt = prompts.back(), .max_tokens = 10, .prefill_chunk = 50}));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const RequestResult result = results[i].get();
      EXPECT_EQ(result.tokens, Model().GreedyText(prompts[i], 10));
      EXPECT_EQ(result.finish, FinishReason::kLength);
      EXPECT_EQ(result.stats.prefill_tokens, int(prompts[i].size()) - 1);
      EXPECT_EQ(result.stats.decode_tokens, 10);
      EXPECT_TRUE(result.stats.fallback.empty());
    }
  }
}

TEST(Engine, FinishesOrCancelsWhenStopped) {
  for (bool finish : {true, false}) {
    Engine engine(Model().spec(), Model().Devices(2), {.max_running = 2});
    std::vector<std::future<RequestResult>> results;
    for (int i = 0; i < 6; ++i)
      results.push_back(Start(engine, {.prompt = Prompt(100 + i), .max_tokens = 400}));
    engine.Stop(finish);
    for (auto& result : results)
      EXPECT_EQ(result.get().finish, finish ? FinishReason::kLength : FinishReason::kCancelled);
    ExpectError(ErrorKind::kCancelled, {"shutting down"}, [&] { Start(engine, {.prompt = {1}}); });
  }
}

TEST(Engine, CancelsOneAndTimesOutAnother) {
  Engine engine(Model().spec(), Model().Devices(2));
  RequestId id = 0;
  auto cancelled = Start(engine, {.prompt = Prompt(50), .max_tokens = 3000}, &id);
  auto late = Start(engine, {.prompt = Prompt(60), .max_tokens = 3000, .timeout_ms = 20});
  auto good = Start(engine, {.prompt = Prompt(70), .max_tokens = 20});
  engine.Cancel(id);
  engine.Cancel(12345);
  EXPECT_EQ(cancelled.get().finish, FinishReason::kCancelled);
  const RequestResult result = late.get();
  EXPECT_EQ(result.finish, FinishReason::kTimeout);
  EXPECT_GE(result.stats.total_ms, 20);
  EXPECT_EQ(good.get().tokens, Model().GreedyText(Prompt(70), 20));
}

TEST(Engine, ASinkMaySubmit) {
  std::promise<RequestResult> second;
  Engine engine(Model().spec(), Model().Devices(1));
  engine.Submit({.prompt = Prompt(9), .max_tokens = 3},
                {{}, [&](const RequestResult& first) {
                   engine.Submit({.prompt = first.tokens, .max_tokens = 2},
                                 {{}, [&](RequestResult r) { second.set_value(std::move(r)); }});
                 }});
  EXPECT_EQ(second.get_future().get().tokens.size(), 2u);
}

TEST(Engine, TurnsAwayWhatItHasNoRoomFor) {
  Engine engine(Model().spec(), Model().Devices(1), {.max_queued = 1, .max_running = 1});
  auto runs = Start(engine, {.prompt = Prompt(20), .max_tokens = 1000});
  auto waits = Start(engine, {.prompt = Prompt(20), .max_tokens = 1});
  auto busy = Start(engine, {.prompt = Prompt(20), .max_tokens = 1});
  EXPECT_EQ(busy.get().failure.kind, ErrorKind::kBusy);
  EXPECT_EQ(runs.get().finish, FinishReason::kLength);
  EXPECT_EQ(waits.get().finish, FinishReason::kLength);

  const size_t per_token = MemoryBytes(engine.spec(), engine.decode_info().memory, 1);
  Engine small(Model().spec(), Model().Devices(1), {.kv_limit = 100 * per_token});
  EXPECT_EQ(Start(small, {.prompt = Prompt(50), .max_tokens = 52}).get().failure.kind,
            ErrorKind::kOutOfMemory);
  const RequestResult fits = Start(small, {.prompt = Prompt(50), .max_tokens = 51}).get();
  EXPECT_EQ(fits.tokens, Model().GreedyText(Prompt(50), 51));
  EXPECT_EQ(fits.stats.fallback, "there is no room for a prefill session");
}

TEST(Engine, FailuresOfPrefillAndHandoffCostTimeAndNoTokens) {
  for (const Faults& faults : {Faults{1, 0}, Faults{0, 1}, Faults{3, 3}}) {
    Engine engine(Model().spec(), Model().Devices(2, faults));
    const RequestResult result =
        Start(engine, {.prompt = Prompt(300), .max_tokens = 12, .prefill_chunk = 40}).get();
    EXPECT_EQ(result.tokens, Model().GreedyText(Prompt(300), 12));
    EXPECT_FALSE(result.stats.fallback.empty());
    EXPECT_GT(result.stats.tail_tokens, 0);
  }
}

TEST(Engine, PromptsOfOneDeviceGoStraightIntoTheSlot) {
  Engine engine(Model().spec(), Model().DirectDevices(), {.prefix_cache_bytes = 1 << 26});
  EXPECT_EQ(engine.lanes(), 1);
  EXPECT_EQ(engine.prefill_units(), 0u);
  const auto prompt = Prompt(400);
  for (int chunk : {1000, 50}) {
    auto other = prompt;
    other[0] = chunk % 90;  // nothing of it is cached
    const RequestResult result =
        Start(engine, {.prompt = other, .max_tokens = 20, .prefill_chunk = chunk}).get();
    EXPECT_EQ(result.tokens, Model().GreedyText(other, 20));
    const RequestStats& stats = result.stats;
    EXPECT_EQ(stats.prefill_device, engine.decode_info().name);
    EXPECT_TRUE(stats.direct);
    EXPECT_EQ(stats.prefill_tokens, 399);
    EXPECT_GT(stats.prefill_ms, 0);
    EXPECT_EQ(stats.tail_tokens, 0);
    EXPECT_EQ(stats.handoff_bytes, 0u);
    EXPECT_EQ(stats.handoff_ms, 0);
    EXPECT_TRUE(stats.fallback.empty());
  }
  // The cache took its copy: what comes back from it is counted as handed over.
  auto again = prompt;
  again[0] = 50;
  const RequestResult cached = Start(engine, {.prompt = again, .max_tokens = 20}).get();
  EXPECT_EQ(cached.tokens, Model().GreedyText(again, 20));
  EXPECT_EQ(cached.stats.cached_tokens, 399);
  EXPECT_EQ(cached.stats.prefill_tokens, 0);
  EXPECT_EQ(cached.stats.handoff_bytes, MemoryBytes(engine.spec(), engine.decode_info().memory, 399));
}

// The cache has a prompt as soon as it is complete, even if its text is never finished.
TEST(Engine, OneDeviceSharesAPromptBeforeItsTextEnds) {
  Engine engine(Model().spec(), Model().DirectDevices(), {.prefix_cache_bytes = 1 << 26});
  std::atomic<bool> cancel = false;
  int seen = 0;
  const auto first = Generate(
      engine, {.prompt = Prompt(100), .max_tokens = 1000},
      [&](const Sampled&) {
        cancel = ++seen >= 10;
        return true;
      },
      &cancel);
  EXPECT_EQ(first.finish, FinishReason::kCancelled);
  const auto again = Start(engine, {.prompt = Prompt(100), .max_tokens = 10}).get();
  EXPECT_GE(again.stats.cached_tokens, 99);
  EXPECT_EQ(again.tokens, Model().GreedyText(Prompt(100), 10));
}

// Room for one slot and no session: a second set of keys and values would not fit.
TEST(Engine, OneDeviceHoldsKeysAndValuesOnce) {
  const size_t per_token = MemoryBytes(Model().spec(), Model().Open(0)->Info().memory, 1);
  Engine engine(Model().spec(), Model().DirectDevices(), {.kv_limit = 119 * per_token});
  const RequestResult result = Start(engine, {.prompt = Prompt(100), .max_tokens = 20}).get();
  EXPECT_EQ(result.tokens, Model().GreedyText(Prompt(100), 20));
  EXPECT_TRUE(result.stats.fallback.empty());
}

TEST(Engine, SaysWhatDoesNotClose) {
  for (const bool direct : {false, true}) {
    std::vector<std::string> warnings;
    const Faults faults{.close = true};
    Engine engine(Model().spec(), direct ? Model().DirectDevices(faults) : Model().Devices(2, faults),
                  {.warn = [&](const std::string& line) { warnings.push_back(line); }});
    const RequestResult result = Start(engine, {.prompt = Prompt(100), .max_tokens = 5}).get();
    EXPECT_EQ(result.tokens, Model().GreedyText(Prompt(100), 5));
    EXPECT_EQ(result.finish, FinishReason::kLength);
    engine.Stop(true);
    std::ranges::sort(warnings);
    std::vector<std::string> expected = {"the slot of request 1 did not close: a fault of closing"};
    if (!direct)
      expected.insert(expected.begin(), "the prefill session of request 1 did not close: a fault of closing");
    EXPECT_EQ(warnings, expected);
  }
}

TEST(Engine, BeginsWhereAnEarlierPromptEnded) {
  Engine engine(Model().spec(), Model().Devices(2), {.prefix_cache_bytes = 1 << 26});
  auto prompt = Prompt(400);
  const auto first = Start(engine, {.prompt = prompt, .max_tokens = 40, .prefill_chunk = 64}).get();
  EXPECT_EQ(first.stats.cached_tokens, 0);
  EXPECT_EQ(first.stats.prefill_tokens, 399);
  // The same again: all but the last token, which is a decode row like any other.
  const auto again = Start(engine, {.prompt = prompt, .max_tokens = 40}).get();
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.stats.cached_tokens, 399);
  EXPECT_EQ(again.stats.prefill_tokens, 0);
  // A second turn: the answer was kept too, except its last token, whose keys were never computed.
  auto turn = prompt;
  turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
  turn.insert(turn.end(), {3, 1, 4, 1, 5});
  const auto second = Start(engine, {.prompt = turn, .max_tokens = 20}).get();
  EXPECT_EQ(second.stats.cached_tokens, 439);
  EXPECT_EQ(second.tokens, Model().GreedyText(turn, 20));
  // Cut at any token.
  for (int length : {2, 63, 64, 65, 200, 398}) {
    std::vector<TokenId> other(prompt.begin(), prompt.begin() + length);
    other.insert(other.end(), {90, 91, 92});
    const auto result = Start(engine, {.prompt = other, .max_tokens = 10}).get();
    EXPECT_EQ(result.stats.cached_tokens, length);
    EXPECT_EQ(result.tokens, Model().GreedyText(other, 10));
  }
}

TEST(Engine, RemembersOverARestart) {
  const TempFolder folder;
  const auto prompt = Prompt(400);
  std::vector<std::string> warnings;
  const EngineOptions options{.prefix_cache_bytes = 1 << 26,
                              .disk_cache = folder.path() / "kv",
                              .warn = [&](const std::string& line) { warnings.push_back(line); }};
  const auto expected = Model().GreedyText(prompt, 30);
  for (int start = 0; start < 3; ++start) {
    Engine engine(Model().spec(), Model().Devices(2), options);
    const auto result = Start(engine, {.prompt = prompt, .max_tokens = 30, .prefill_chunk = 100}).get();
    EXPECT_EQ(result.tokens, expected);
    EXPECT_EQ(result.stats.cached_tokens, start == 0 ? 0 : 399);
  }
  EXPECT_TRUE(warnings.empty());
  // Damage costs time only.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "kv")) {
    std::string bytes = ReadTextFile(entry.path());
    bytes.back() = char(bytes.back() ^ 1);
    WriteFileAtomically(entry.path(), bytes);
  }
  Engine engine(Model().spec(), Model().Devices(2), options);
  const auto result = Start(engine, {.prompt = prompt, .max_tokens = 30}).get();
  EXPECT_EQ(result.tokens, expected);
  EXPECT_EQ(result.stats.cached_tokens, 0);
  engine.Stop(true);
  EXPECT_FALSE(warnings.empty());
  for (const std::string& line : warnings) EXPECT_NE(line.find("ignored"), std::string::npos);
}

}  // namespace
}  // namespace pd::test
