#include "engine/generate.h"

#include <gtest/gtest.h>

#include "device/prefill_via.h"
#include "reference/reference_ops.h"
#include "tests/engine/fake_devices.h"
#include "tests/tiny_model.h"

namespace pd::test {
namespace {

struct Outcome {
  GenerateResult result;
  Journal journal;
  std::vector<TokenId> seen;  // by the sink
};

// Until the sink has seen `enough` tokens.
Outcome RunScript(std::vector<TokenId> script, GenerateRequest request, size_t enough = 1000,
                  int cancel_at = -1, int prefill_tokens = INT_MAX) {
  Outcome run;
  FakePrefill prefill(run.journal);
  prefill.cancel_at = cancel_at;
  prefill.max_tokens = prefill_tokens;
  FakeDecode decode(run.journal, std::move(script));
  if (!request.cancel) request.cancel = &prefill.cancel;
  run.result = Generate(FakeSpec(), prefill, decode, request, [&](const Sampled& s) {
    run.seen.push_back(s.token);
    return run.seen.size() < enough;
  });
  return run;
}

std::string MessageOf(const std::function<void()>& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

const std::vector<TokenId> kPrompt = {10, 11, 12, 13, 14};

TEST(Generate, PrefillsInChunksThenKeepsOneStepAhead) {
  const Outcome run = RunScript({50, 51, 52, 53}, {.prompt = kPrompt, .max_tokens = 4, .prefill_chunk = 3});
  EXPECT_EQ(run.journal,
            (Journal{"open 8", "begin 4",                                //
                     "prefill 0+3 from token 10", "import 0+3",          //
                     "prefill 3+1 from token 13", "import 3+1",          //
                     "submit 14 at 4 draw 0 knows 5 of 5", "collect 0",  // alone: somebody waits for it
                     "submit 50 at 5 draw 1 knows 6 of 5",               //
                     "submit -1 at 6 draw 2 knows 6 of 5", "collect 1",  // token 51 is still on its way
                     "submit -1 at 7 draw 3 knows 7 of 5", "collect 2",  //
                     "collect 3",                                        //
                     "close"}));
  EXPECT_EQ(run.result.tokens, (std::vector<TokenId>{50, 51, 52, 53}));
  EXPECT_EQ(run.seen, run.result.tokens);
  EXPECT_EQ(run.result.finish, FinishReason::kLength);
  EXPECT_EQ(run.result.stats.prefill_tokens, 4);
  EXPECT_EQ(run.result.stats.handoff_bytes, size_t(4 * 2 * 2) * sizeof(float));
  EXPECT_EQ(run.result.stats.decode_tokens, 4);
  EXPECT_GT(run.result.stats.first_token_ms, 0);
}

TEST(Generate, DecodeDeviceTakesWhatPrefillCannot) {
  const Outcome run = RunScript({50}, {.prompt = kPrompt, .max_tokens = 1, .prefill_chunk = 2}, 1000, -1, 1);
  EXPECT_EQ(run.journal, (Journal{"open 5", "begin 4",                        //
                                  "prefill 0+1 from token 10", "import 0+1",  //
                                  "extend 1+2 from token 11", "extend 3+1 from token 13",
                                  "submit 14 at 4 draw 0 knows 5 of 5", "collect 0", "close"}));
  EXPECT_EQ(run.result.stats.prefill_tokens, 1);
  EXPECT_EQ(run.result.stats.tail_tokens, 3);
}

TEST(Generate, TruncatesTheStepPastAnEndToken) {
  const std::vector<TokenId> ends = {99, 2};
  const Outcome run =
      RunScript({50, 51, 2, 53, 54}, {.prompt = kPrompt, .max_tokens = 10, .end_tokens = ends});
  EXPECT_EQ(run.result.tokens, (std::vector<TokenId>{50, 51, 2}));
  EXPECT_EQ(run.seen, (std::vector<TokenId>{50, 51}));  // an end token is no text
  EXPECT_EQ(run.result.finish, FinishReason::kStop);
  // Prompt and the two tokens before the end fill positions 0 to 6; the end token itself was submitted ahead.
  const Journal end(run.journal.end() - 5, run.journal.end());
  EXPECT_EQ(end,
            (Journal{"submit -1 at 7 draw 3 knows 7 of 5", "collect 2", "collect 3", "truncate 7", "close"}));
}

TEST(Generate, StopsWhenTheSinkHasEnough) {
  const Outcome run = RunScript({50, 51, 52, 53}, {.prompt = kPrompt, .max_tokens = 10}, 2);
  EXPECT_EQ(run.result.tokens, (std::vector<TokenId>{50, 51}));
  EXPECT_EQ(run.result.finish, FinishReason::kStop);
  EXPECT_EQ(run.journal[run.journal.size() - 2], "truncate 6");
}

TEST(Generate, EndsAtTheFirstTokenWithoutASecondStep) {
  const std::vector<TokenId> ends = {50};
  const Outcome run = RunScript({50}, {.prompt = kPrompt, .max_tokens = 10, .end_tokens = ends});
  EXPECT_EQ(run.result.tokens, (std::vector<TokenId>{50}));
  EXPECT_TRUE(run.seen.empty());
  EXPECT_EQ(run.journal.back(), "close");
  EXPECT_EQ(run.journal[run.journal.size() - 2], "collect 0");
}

TEST(Generate, HonoursZeroTokens) {
  const Outcome run = RunScript({}, {.prompt = kPrompt, .max_tokens = 0});
  EXPECT_EQ(run.journal, (Journal{"open 4", "begin 4", "prefill 0+4 from token 10", "import 0+4", "close"}));
  EXPECT_TRUE(run.result.tokens.empty());
  EXPECT_EQ(run.result.finish, FinishReason::kLength);
  EXPECT_EQ(run.result.stats.first_token_ms, 0);
}

TEST(Generate, OneTokenOfPromptNeedsNoPrefill) {
  const std::vector<TokenId> one = {42};
  EXPECT_EQ(RunScript({50}, {.prompt = one, .max_tokens = 1}).journal,
            (Journal{"open 1", "submit 42 at 0 draw 0 knows 1 of 1", "collect 0", "close"}));
  EXPECT_EQ(RunScript({}, {.prompt = one, .max_tokens = 0}).journal, (Journal{"open 1", "close"}));
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

TEST(Generate, CancelsBetweenChunksAndSteps) {
  const Outcome early = RunScript({50}, {.prompt = kPrompt, .max_tokens = 9, .prefill_chunk = 1}, 1000, 1);
  EXPECT_EQ(early.result.finish, FinishReason::kCancelled);
  EXPECT_TRUE(early.result.tokens.empty());
  EXPECT_EQ(early.journal, (Journal{"open 13", "begin 4", "prefill 0+1 from token 10", "import 0+1",
                                    "prefill 1+1 from token 11", "import 1+1", "close"}));
  const Outcome last = RunScript({50}, {.prompt = kPrompt, .max_tokens = 9}, 1000, 0);
  EXPECT_TRUE(last.result.tokens.empty());

  Journal journal;
  FakePrefill prefill(journal);
  FakeDecode decode(journal, {50, 51, 52, 53, 54, 55});
  std::atomic<bool> cancel{false};
  const auto result =
      Generate(FakeSpec(), prefill, decode, {.prompt = kPrompt, .max_tokens = 9, .cancel = &cancel},
               [&](const Sampled& s) { return cancel = s.token == 52, true; });
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_EQ(result.tokens, (std::vector<TokenId>{50, 51, 52}));
  EXPECT_EQ(journal[journal.size() - 2], "truncate 7");
}

TEST(Generate, ClosesTheSlotWhateverHappens) {
  Journal journal;
  FakePrefill prefill(journal);
  FakeDecode broken(journal, {50, 51});
  EXPECT_EQ(MessageOf(
                [&] {
                  Generate(FakeSpec(), prefill, broken, {.prompt = kPrompt, .max_tokens = 9},
                           [](const Sampled&) { return true; });
                },
                ErrorKind::kDevice),
            "the fake device broke");
  EXPECT_EQ(journal.back(), "close");

  FakeDecode decode(journal, {50, 51, 52, 53});
  EXPECT_THROW(Generate(FakeSpec(), prefill, decode, {.prompt = kPrompt, .max_tokens = 9},
                        [](const Sampled& s) {
                          if (s.token == 51) throw std::runtime_error("sink");
                          return true;
                        }),
               std::runtime_error);
  EXPECT_EQ(journal.back(), "close");
  EXPECT_EQ(journal[journal.size() - 2], "collect 2");  // the step that was ahead
}

TEST(Generate, RefusesWhatCannotBe) {
  const auto message = [](const GenerateRequest& request, ErrorKind kind = ErrorKind::kBadRequest) {
    return MessageOf([&] { RunScript({}, request); }, kind);
  };
  EXPECT_EQ(message({.max_tokens = 5}), "the prompt is empty: give at least one token");
  EXPECT_EQ(message({.prompt = kPrompt, .max_tokens = 5, .context = 3}),
            "the prompt has 5 tokens and the context holds 3: shorten the prompt by 2 tokens");
  EXPECT_EQ(message({.prompt = kPrompt, .max_tokens = -1}), "max_tokens is -1: give 0 or more");
  EXPECT_EQ(message({.prompt = kPrompt, .prefill_chunk = 0}),
            "the prefill chunk is 0: give 1 or more tokens");
  EXPECT_EQ(message({.prompt = kPrompt, .context = 1001}),
            "a context of 1001 tokens: the model allows 1 to 1000");
  EXPECT_EQ(message({.prompt = kPrompt, .sample = {.top_p = 2}}),
            "top_p is 2: give a number above 0 and at most 1 (off)");

  Journal journal;
  FakePrefill prefill(journal);
  prefill.refusal = "its bucket is too small";
  FakeDecode decode(journal, {});
  EXPECT_EQ(MessageOf(
                [&] {
                  Generate(FakeSpec(), prefill, decode, {.prompt = kPrompt, .max_tokens = 1},
                           [](const Sampled&) { return true; });
                },
                ErrorKind::kUnsupported),
            "fake-prefill cannot prefill this request: its bucket is too small");
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
  PrefillVia prefill(OpenReferenceDevice(model));
  const auto decode = OpenReferenceDevice(model);
  std::vector<TokenId> prompt(33);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = TokenId((i * 37 + 5) % 96);

  SampleSpec penalised{.temperature = 0.9f, .top_k = 30, .top_p = 0.95f, .seed = 5};
  penalised.penalties.repetition = 1.3f, penalised.penalties.presence = 0.5f,
  penalised.penalties.frequency = 0.5f;
  for (const SampleSpec& sample : {SampleSpec{}, SampleSpec{.temperature = 1.2f, .seed = 3}, penalised}) {
    for (size_t length : {1u, 2u, 32u, 33u}) {
      const std::vector<TokenId> part(prompt.begin(), prompt.begin() + ptrdiff_t(length));
      const auto expected = PlainText(*decode, part, sample, 12);
      for (int chunk : {1, 7, 31, 512}) {
        std::vector<TokenId> seen;
        const auto result =
            Generate(tiny.spec, prefill, *decode,
                     {.prompt = part, .max_tokens = 12, .sample = sample, .prefill_chunk = chunk},
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
