#include "serving/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/prefill_via.h"
#include "reference/reference_ops.h"
#include "tests/expect_error.h"
#include "tests/serving/fake_devices.h"
#include "tests/tiny_model.h"

namespace pd::test {
namespace {

struct Outcome {
  RequestResult result;
  Journal journal;
  std::vector<TokenId> seen;  // by the sink
};

// Until the sink has seen `enough` tokens. The journal is whole: the engine is gone.
Outcome RunScript(std::vector<TokenId> script, const Request& request, size_t enough = 1000) {
  Outcome run;
  FakeDevices devices(run.journal, std::move(script));
  Engine engine(FakeSpec(), devices.Take());
  run.result = Generate(engine, request, [&](const Sampled& s) {
    run.seen.push_back(s.token);
    return run.seen.size() < enough;
  });
  engine.Stop(true);
  return run;
}

const std::vector<TokenId> kPrompt = {10, 11, 12, 13, 14};

TEST(Generate, PrefillsInChunksThenKeepsOneStepAhead) {
  const Outcome run = RunScript({50, 51, 52, 53}, {.prompt = kPrompt, .max_tokens = 4, .prefill_chunk = 3});
  EXPECT_EQ(run.journal, (Journal{"open 8", "begin 4",                         //
                                  "prefill 0+3 from token 10", "import 0+3",   //
                                  "prefill 3+1 from token 13", "end prefill",  //
                                  "import 3+1",                                //
                                  "submit 14 at 4 draw 0", "collect 0",        // alone: somebody waits for it
                                  "submit 50 at 5 draw 1",                     //
                                  "submit -1 at 6 draw 2", "collect 1",        // token 51 is still on its way
                                  "submit -1 at 7 draw 3", "collect 2", "collect 3",  //
                                  "close"}));
  EXPECT_EQ(run.result.tokens, (std::vector<TokenId>{50, 51, 52, 53}));
  EXPECT_EQ(run.seen, run.result.tokens);
  EXPECT_EQ(run.result.finish, FinishReason::kLength);
  EXPECT_EQ(run.result.stats.prefill_device, "fake-prefill");
  EXPECT_EQ(run.result.stats.prefill_tokens, 4);
  EXPECT_EQ(run.result.stats.handoff_bytes, size_t(4 * 2 * 2) * sizeof(float));
  EXPECT_EQ(run.result.stats.decode_tokens, 4);
  EXPECT_GT(run.result.stats.first_token_ms, 0);
  EXPECT_GE(run.result.stats.total_ms, run.result.stats.first_token_ms);
}

TEST(Generate, DecodeDeviceTakesWhatPrefillCannot) {
  Journal journal;
  FakeDevices devices(journal, {50});
  devices.prefill->max_tokens = 1;
  Engine engine(FakeSpec(), devices.Take());
  const RequestResult result = Generate(engine, {.prompt = kPrompt, .max_tokens = 1, .prefill_chunk = 2}, {});
  engine.Stop(true);
  EXPECT_EQ(journal,
            (Journal{"open 5", "begin 4", "prefill 0+1 from token 10", "end prefill", "import 0+1",  //
                     "rows 1+2", "rows 3+1", "submit 14 at 4 draw 0", "collect 0", "close"}));
  EXPECT_EQ(result.stats.prefill_tokens, 1);
  EXPECT_EQ(result.stats.tail_tokens, 3);
}

TEST(Generate, TellsTheDeviceWhatTheHostKnows) {
  Request request{.prompt = kPrompt, .max_tokens = 4};
  request.sample.penalties.presence = 1;
  request.bias = {{3, 0.5f}};
  const Outcome run = RunScript({50, 51, 52, 53}, request);
  const Journal steps(run.journal.end() - 9, run.journal.end() - 1);
  EXPECT_EQ(steps, (Journal{"submit 14 at 4 draw 0 knows 5 of 5, 1 biased", "collect 0",
                            "submit 50 at 5 draw 1 knows 6 of 5, 1 biased",
                            "submit -1 at 6 draw 2 knows 6 of 5, 1 biased", "collect 1",
                            "submit -1 at 7 draw 3 knows 7 of 5, 1 biased", "collect 2", "collect 3"}));
}

TEST(Generate, AnEndTokenIsNoText) {
  const Outcome run =
      RunScript({50, 51, 2, 53, 54}, {.prompt = kPrompt, .max_tokens = 10, .end_tokens = {99, 2}});
  EXPECT_EQ(run.result.tokens, (std::vector<TokenId>{50, 51, 2}));
  EXPECT_EQ(run.seen, (std::vector<TokenId>{50, 51}));
  EXPECT_EQ(run.result.finish, FinishReason::kStop);
  // The end token itself was submitted ahead.
  const Journal end(run.journal.end() - 4, run.journal.end());
  EXPECT_EQ(end, (Journal{"submit -1 at 7 draw 3", "collect 2", "collect 3", "close"}));

  const Outcome first = RunScript({50}, {.prompt = kPrompt, .max_tokens = 10, .end_tokens = {50}});
  EXPECT_EQ(first.result.tokens, (std::vector<TokenId>{50}));
  EXPECT_TRUE(first.seen.empty());
  EXPECT_EQ(first.journal[first.journal.size() - 2], "collect 0");  // and no second step
}

TEST(Generate, StopsWhenTheSinkHasEnough) {
  const Outcome run = RunScript({50, 51, 52, 53}, {.prompt = kPrompt, .max_tokens = 10}, 2);
  EXPECT_EQ(run.result.tokens, (std::vector<TokenId>{50, 51}));
  EXPECT_EQ(run.result.finish, FinishReason::kStop);
  // Enough at the last token: that it was the last is no reason any more.
  EXPECT_EQ(RunScript({50, 51}, {.prompt = kPrompt, .max_tokens = 2}, 2).result.finish, FinishReason::kStop);
}

TEST(Generate, HonoursZeroTokens) {
  const Outcome run = RunScript({}, {.prompt = kPrompt, .max_tokens = 0});
  EXPECT_EQ(run.journal, (Journal{"open 4", "begin 4", "prefill 0+4 from token 10", "end prefill",
                                  "import 0+4", "close"}));
  EXPECT_TRUE(run.result.tokens.empty());
  EXPECT_EQ(run.result.finish, FinishReason::kLength);
  EXPECT_EQ(run.result.stats.first_token_ms, 0);
}

TEST(Generate, OneTokenOfPromptNeedsNoPrefill) {
  EXPECT_EQ(RunScript({50}, {.prompt = {42}, .max_tokens = 1}).journal,
            (Journal{"open 1", "submit 42 at 0 draw 0", "collect 0", "close"}));
  EXPECT_EQ(RunScript({}, {.prompt = {42}, .max_tokens = 0}).journal, (Journal{"open 1", "close"}));
}

TEST(Generate, FillsTheContextAndNotMore) {
  // Tokens at positions 4 to 7 choose four tokens; the fourth does not enter the slot.
  const Outcome run =
      RunScript({50, 51, 52, 53, 54}, {.prompt = kPrompt, .max_tokens = INT32_MAX, .context = 8});
  EXPECT_EQ(run.journal.front(), "open 8");
  EXPECT_EQ(run.result.tokens.size(), 4u);
  EXPECT_EQ(run.result.finish, FinishReason::kLength);
  const Outcome full = RunScript({50, 51}, {.prompt = kPrompt, .max_tokens = 100, .context = 5});
  EXPECT_EQ(full.result.tokens.size(), 1u);
}

TEST(Generate, CancelsWhenAsked) {
  Journal journal;
  FakeDevices devices(journal, std::vector<TokenId>(1 << 20, 50));
  Engine engine(FakeSpec(1 << 20), devices.Take());
  std::atomic<bool> cancel{false};
  size_t seen = 0;
  const auto result = Generate(
      engine, {.prompt = kPrompt, .max_tokens = INT32_MAX},
      [&](const Sampled&) {
        if (++seen == 3) cancel = true;
        return true;
      },
      &cancel);
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_GE(seen, 3u);
  EXPECT_EQ(result.tokens.size(), seen);
  engine.Stop(true);
  EXPECT_EQ(journal.back(), "close");
}

TEST(Generate, ClosesTheSlotWhateverHappens) {
  Journal journal;
  {
    FakeDevices broken(journal, {50, 51});
    Engine engine(FakeSpec(), broken.Take());
    ExpectError(ErrorKind::kDevice, {"the fake device broke"}, [&] {
      Generate(engine, {.prompt = kPrompt, .max_tokens = 9}, [](const Sampled&) { return true; });
    });
  }
  EXPECT_EQ(journal.back(), "close");
  journal.clear();
  {
    FakeDevices devices(journal, {50, 51, 52, 53});
    Engine engine(FakeSpec(), devices.Take());
    ExpectError(ErrorKind::kOutOfMemory, {"sink"}, [&] {
      Generate(engine, {.prompt = kPrompt, .max_tokens = 9}, [](const Sampled& s) {
        if (s.token == 51) throw Fail(ErrorKind::kOutOfMemory, "sink");
        return true;
      });
    });
  }
  EXPECT_EQ(journal.back(), "close");
  EXPECT_EQ(journal[journal.size() - 2], "collect 2");  // the step that was ahead
}

TEST(Generate, RefusesWhatCannotBe) {
  const auto refuses = [](const Request& request, std::string_view why) {
    ExpectError(ErrorKind::kBadRequest, {why}, [&] { RunScript({}, request); });
  };
  refuses({.max_tokens = 5}, "the prompt is empty: give at least one token");
  refuses({.prompt = kPrompt, .max_tokens = 5, .context = 3},
          "the prompt has 5 tokens and the context holds 3: shorten the prompt by 2 tokens");
  refuses({.prompt = {1, 100}}, "100 is no token of this model");
  refuses({.prompt = {1, -1}}, "-1 is no token of this model");
  refuses({.prompt = kPrompt, .max_tokens = -1}, "max_tokens is -1: give 0 or more");
  refuses({.prompt = kPrompt, .prefill_chunk = 0}, "the prefill chunk is 0: give 1 or more tokens");
  refuses({.prompt = kPrompt, .context = 1001}, "a context of 1001 tokens: the model allows 1 to 1000");
  refuses({.prompt = kPrompt, .sample = {.top_p = 2}}, "top_p is 2");
  refuses({.prompt = kPrompt, .bias = {{100, 1.f}}}, "100");
  refuses({.prompt = kPrompt, .timeout_ms = -1}, "the timeout is -1 ms");
  refuses({.prompt = kPrompt, .timeout_ms = NAN}, "the timeout is nan ms");
}

TEST(Generate, ADeviceThatRefusesIsReplacedUnlessItWasNamed) {
  Journal journal;
  FakeDevices devices(journal, {50, 51});
  devices.prefill->refusal = "its bucket is too small";
  Engine engine(FakeSpec(), devices.Take());
  const auto run = [&](bool named) {
    return Generate(engine, {.prompt = kPrompt, .max_tokens = 1, .prefill_is_named = named}, {});
  };
  ExpectError(ErrorKind::kUnsupported, {"fake-prefill cannot prefill this request: its bucket is too small"},
              [&] { run(true); });
  const RequestResult result = run(false);
  EXPECT_EQ(result.tokens, (std::vector<TokenId>{50}));
  EXPECT_EQ(result.stats.fallback, "fake-prefill cannot prefill this request: its bucket is too small");
  EXPECT_EQ(result.stats.tail_tokens, 4);
  EXPECT_EQ(result.stats.prefill_tokens, 0);
}

// Greedy and sampled text of the reference device, by the plainest loop there is: one row a step, nothing
// ahead.
std::vector<TokenId> PlainText(DecodeDevice& device, const std::vector<TokenId>& prompt, SampleSpec sample,
                               int count) {
  const SlotId slot = device.Open(200, {});
  std::vector<TokenId> sequence = prompt;
  for (int32_t position = 0; int(sequence.size()) < int(prompt.size()) + count; ++position) {
    const int32_t row = 0;
    const bool last = size_t(position) + 1 == sequence.size();
    sample.draw = uint64_t(position) + 1 - prompt.size();
    sample.penalties.context = sequence;
    sample.penalties.prompt_tokens = int(prompt.size());
    const Rows rows{
        {&sequence[size_t(position)], 1}, {&position, 1}, {&slot, 1}, {&row, last ? size_t(1) : size_t(0)}};
    const auto sampled = device.Collect(device.Submit({rows, {&sample, last ? size_t(1) : size_t(0)}}));
    if (last) sequence.push_back(sampled[0].sampled.token);
  }
  device.Close(slot);
  sequence.erase(sequence.begin(), sequence.begin() + ptrdiff_t(prompt.size()));
  return sequence;
}

TEST(Generate, EqualsAPlainLoopOnTheReferenceDevice) {
  TinyModel tiny = RandomModel(MixedSpec());
  const auto model = LoadReferenceModel(tiny.spec, tiny.tensors);
  const auto plain = OpenReferenceDevice(model);
  EngineDevices devices;
  devices.prefill.push_back(std::make_unique<PrefillVia>(OpenReferenceDevice(model)));
  devices.decode = OpenReferenceDevice(model);
  Engine engine(tiny.spec, std::move(devices));
  std::vector<TokenId> prompt(33);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = TokenId((i * 37 + 5) % 96);

  SampleSpec penalised{.temperature = 0.9f, .top_k = 30, .top_p = 0.95f, .seed = 5};
  penalised.penalties.repetition = 1.3f, penalised.penalties.presence = 0.5f,
  penalised.penalties.frequency = 0.5f;
  for (const SampleSpec& sample : {SampleSpec{}, SampleSpec{.temperature = 1.2f, .seed = 3}, penalised}) {
    for (size_t length : {1u, 2u, 32u, 33u}) {
      const std::vector<TokenId> part(prompt.begin(), prompt.begin() + ptrdiff_t(length));
      const auto expected = PlainText(*plain, part, sample, 12);
      for (int chunk : {1, 7, 31, 512}) {
        std::vector<TokenId> seen;
        const auto result =
            Generate(engine, {.prompt = part, .max_tokens = 12, .sample = sample, .prefill_chunk = chunk},
                     [&](const Sampled& s) {
                       seen.push_back(s.token);
                       return true;
                     });
        EXPECT_EQ(result.tokens, expected) << length << " tokens in chunks of " << chunk;
        EXPECT_EQ(seen, expected);
      }
    }
  }
}

}  // namespace
}  // namespace pd::test
