#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "sample/uniform.h"

namespace {
std::atomic<int> allocations{0};
}  // namespace

// Counts what the program allocates, for the test that a warm step allocates nothing.
void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
// Not inlined: g++ would see free() given what a call of new returned, and warn.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace pd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct GoldenCase {
  std::vector<float> logits;
  std::vector<TokenId> context;
  std::vector<std::pair<TokenId, float>> bias;
  SampleSpec spec;  // looks into context and bias
};

void Fill(GoldenCase& golden, const Json& json) {
  golden.logits = json["logits"].get<std::vector<float>>();
  golden.context = json["context"].get<std::vector<TokenId>>();
  for (const Json& entry : json["bias"])
    golden.bias.emplace_back(entry[0].get<TokenId>(), entry[1].get<float>());
  SampleSpec& s = golden.spec;
  s.temperature = json["temperature"], s.top_k = json["top_k"], s.top_p = json["top_p"],
  s.min_p = json["min_p"];
  s.penalties.repetition = json["repetition"], s.penalties.presence = json["presence"];
  s.penalties.frequency = json["frequency"], s.penalties.prompt_tokens = json["prompt_tokens"];
  s.penalties.context = golden.context, s.bias = golden.bias, s.seed = json["seed"];
}

TEST(Sampler, EqualsHuggingFace) {
  const Json file = ParseJson(ReadTextFile(PD_TEST_DATA "/sample/goldens.json"), "goldens.json");
  ASSERT_GE(file["cases"].size(), 20u);
  Sampler sampler;
  for (const Json& json : file["cases"]) {
    SCOPED_TRACE(json.dump());
    GoldenCase golden;
    Fill(golden, json);
    const Json& expected = json["expected"];
    CheckSampleSpec(golden.spec, int(golden.logits.size()));

    SampleSpec greedy = golden.spec;
    greedy.temperature = 0, greedy.top_logprobs = 20;
    const Sampled best = sampler.Sample(golden.logits, greedy);
    EXPECT_EQ(best.token, expected["greedy"]);
    for (const TokenLogprob& t : best.top)
      EXPECT_NEAR(t.logprob, expected["logprobs"][size_t(t.token)].get<float>(), 2e-5);

    ASSERT_GE(expected["draws"].size(), 30u);
    for (const Json& draw : expected["draws"]) {
      golden.spec.draw = draw[0];
      const Sampled sampled = sampler.Sample(golden.logits, golden.spec);
      EXPECT_EQ(sampled.token, draw[1]) << "draw " << draw[0];
      EXPECT_NEAR(sampled.logprob, expected["logprobs"][size_t(sampled.token)].get<float>(), 2e-5);
    }
    const auto kept = expected["kept"].get<std::set<TokenId>>();
    for (uint64_t draw = 0; draw < 2000; ++draw) {
      golden.spec.draw = draw;
      EXPECT_TRUE(kept.contains(sampler.Sample(golden.logits, golden.spec).token));
    }
  }
}

// Pearson's chi-squared over 40,000 draws: with 7 degrees of freedom, 24.3 is passed once in a thousand.
// Seeds are fixed, so the test either always passes or never.
TEST(Sampler, DrawsByProbability) {
  const std::vector<float> logits = {0.f, 1.f, -1.f, 2.f, 0.5f, -2.f, 1.5f, 0.25f};
  constexpr int kDraws = 40000;
  for (float temperature : {0.5f, 1.f, 3.f}) {
    std::vector<double> probability;
    double total = 0;
    for (float l : logits)
      probability.push_back(std::exp(double(l) / double(temperature))), total += probability.back();
    // Along draws of one seed, and along seeds of one draw.
    for (const bool by_draw : {true, false}) {
      std::vector<int> seen(logits.size());
      Sampler sampler;
      for (int i = 0; i < kDraws; ++i) {
        SampleSpec spec{.temperature = temperature};
        (by_draw ? spec.draw : spec.seed) = uint64_t(i);
        ++seen[size_t(sampler.Sample(logits, spec).token)];
      }
      double chi = 0;
      for (size_t i = 0; i < logits.size(); ++i) {
        const double expected = kDraws * probability[i] / total;
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
      }
      EXPECT_LT(chi, 24.3) << temperature << (by_draw ? " by draw" : " by seed");
    }
  }
}

TEST(Sampler, IsAFunctionOfSeedAndDraw) {
  const std::vector<float> logits(1000, 0.f);
  Sampler a, b;
  SampleSpec spec{.temperature = 1, .seed = 42};
  std::vector<TokenId> forward, backward;
  for (uint64_t d = 0; d < 50; ++d) spec.draw = d, forward.push_back(a.Sample(logits, spec).token);
  for (uint64_t d = 50; d-- > 0;) spec.draw = d, backward.push_back(b.Sample(logits, spec).token);
  EXPECT_EQ(forward, std::vector<TokenId>(backward.rbegin(), backward.rend()));
  spec.seed = 43;
  int same = 0;
  for (uint64_t d = 0; d < 50; ++d) spec.draw = d, same += a.Sample(logits, spec).token == forward[d];
  EXPECT_LE(same, 3);
}

TEST(Sampler, GreedyTakesTheLowestIdOfEqualsAndIgnoresFilters) {
  Sampler sampler;
  std::vector<float> logits(50, 1.f);
  logits[20] = logits[33] = 2.f;
  EXPECT_EQ(sampler.Sample(logits, {}).token, 20);
  SampleSpec spec{.temperature = 0, .top_k = 3, .top_p = 1e-9f, .min_p = 1};
  EXPECT_EQ(sampler.Sample(logits, spec).token, 20);
  EXPECT_NEAR(sampler.Sample(logits, spec).logprob, 1 - std::log(48 + 2 * std::exp(1.0)), 1e-6);
}

TEST(Sampler, TopKKeepsExactlyKAndPrefersLowIdsOfEquals) {
  Sampler sampler;
  const std::vector<float> logits(300, 0.5f);
  std::set<TokenId> seen;
  for (uint64_t d = 0; d < 400; ++d)
    seen.insert(sampler.Sample(logits, {.temperature = 1, .top_k = 4, .seed = 1, .draw = d}).token);
  EXPECT_EQ(seen, (std::set<TokenId>{0, 1, 2, 3}));
  seen.clear();
  for (uint64_t d = 0; d < 4000; ++d)
    seen.insert(sampler.Sample(logits, {.temperature = 1, .top_k = 100000, .seed = 1, .draw = d}).token);
  EXPECT_EQ(seen.size(), 300u);
}

// The nucleus of a flat distribution is large: the search for it has to grow past its first guess.
TEST(Sampler, TopPFindsLargeNuclei) {
  Sampler sampler;
  const std::vector<float> logits(10000, 0.f);
  std::set<TokenId> seen;
  for (uint64_t d = 0; d < 300; ++d) {
    const TokenId id = sampler.Sample(logits, {.temperature = 1, .top_p = 0.3f, .seed = 8, .draw = d}).token;
    EXPECT_LT(id, 3002);
    seen.insert(id);
  }
  EXPECT_GT(*seen.rbegin(), 2900);
}

// Sorts everything, in double: the definition word for word.
TokenId DrawPlainly(const std::vector<float>& logits, const SampleSpec& spec, double u) {
  std::vector<std::pair<double, TokenId>> tokens;
  tokens.reserve(logits.size());
  const double largest = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i)
    tokens.emplace_back(-std::exp((double(logits[i]) - largest) / double(spec.temperature)), TokenId(i));
  std::sort(tokens.begin(), tokens.end());
  if (spec.top_k > 0 && size_t(spec.top_k) < tokens.size()) tokens.resize(size_t(spec.top_k));
  double total = 0, sum = 0;
  for (const auto& t : tokens) total -= t.first;
  size_t kept = 0;
  while (kept < tokens.size() && (kept == 0 || sum < double(spec.top_p) * total)) sum -= tokens[kept++].first;
  tokens.resize(kept);
  std::erase_if(tokens, [&](const auto& t) { return -t.first < double(spec.min_p); });
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  total = sum = 0;
  for (const auto& t : tokens) total -= t.first;
  for (const auto& t : tokens)
    if (sum -= t.first; sum > u * total) return t.second;
  return tokens.back().second;
}

TEST(Sampler, EqualsThePlainDefinitionOnLargeVocabularies) {
  Sampler sampler;
  std::mt19937 generator(6);
  int different = 0, draws = 0;
  for (float spread : {0.1f, 1.f, 4.f}) {
    for (int vocab : {100, 3000}) {
      std::normal_distribution<float> normal(0, spread);
      std::vector<float> logits(size_t(vocab), 0.f);
      for (float& l : logits) l = normal(generator);
      for (SampleSpec spec :
           {SampleSpec{.temperature = 1, .top_p = 0.5f}, SampleSpec{.temperature = 1, .top_p = 0.99f},
            SampleSpec{.temperature = 0.5f, .top_p = 0.02f},
            SampleSpec{.temperature = 1, .top_k = 70, .top_p = 0.7f},
            SampleSpec{.temperature = 2, .top_k = 2500, .top_p = 0.9f, .min_p = 0.01f},
            SampleSpec{.temperature = 1, .min_p = 0.2f}, SampleSpec{.temperature = 1, .top_k = 9}}) {
        for (uint64_t d = 0; d < 40; ++d, ++draws) {
          spec.draw = d;
          different += sampler.Sample(logits, spec).token != DrawPlainly(logits, spec, Uniform(0, d));
        }
      }
    }
  }
  // Weights are floats: about one draw in a million lands where float and double disagree.
  EXPECT_LE(different, 1) << "of " << draws;
}

TEST(Sampler, ExtremesLeaveOneToken) {
  Sampler sampler;
  std::vector<float> logits(100);
  std::mt19937 generator(2);
  std::normal_distribution<float> normal(0, 1);
  for (float& l : logits) l = normal(generator);
  logits[71] = 5;
  for (uint64_t d = 0; d < 100; ++d) {
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1, .top_k = 1, .draw = d}).token, 71);
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1, .top_p = 1e-30f, .draw = d}).token, 71);
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1, .min_p = 1, .draw = d}).token, 71);
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1e-40f, .draw = d}).token, 71);
  }
}

TEST(Sampler, NeverChoosesMinusInfinity) {
  Sampler sampler;
  std::vector<float> logits(700, -kInfinity);
  logits[613] = -50;
  for (uint64_t d = 0; d < 50; ++d) {
    for (SampleSpec spec :
         {SampleSpec{}, SampleSpec{.temperature = 1}, SampleSpec{.temperature = 100},
          SampleSpec{.temperature = 1, .top_k = 20}, SampleSpec{.temperature = 1, .top_p = 0.99999f},
          SampleSpec{.temperature = 1, .min_p = 0.1f}}) {
      spec.draw = d, spec.top_logprobs = 3;
      const Sampled sampled = sampler.Sample(logits, spec);
      EXPECT_EQ(sampled.token, 613);
      EXPECT_EQ(sampled.logprob, 0);
      ASSERT_EQ(sampled.top.size(), 3u);
      EXPECT_EQ(sampled.top[1].logprob, -kInfinity);
    }
  }
}

TEST(Sampler, RefusesBrokenLogits) {
  Sampler sampler;
  for (float broken : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    std::vector<float> logits(64, 0.f);
    logits[37] = broken;
    try {
      sampler.Sample(logits, {});
      ADD_FAILURE() << broken;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kDevice);
    }
  }
}

TEST(Sampler, CountsUnseenTokensAsGenerated) {
  Sampler sampler;
  const std::vector<float> logits = {1.f, 2.f, -1.f, 0.5f};
  const std::vector<TokenId> context = {0, 2, 1}, unseen = {1, 3}, all = {0, 2, 1, 1, 3};
  SampleSpec spec{.top_logprobs = 4};
  spec.penalties = {
      .repetition = 2, .presence = 0.25f, .frequency = 0.5f, .context = context, .prompt_tokens = 2};
  const Sampled split = sampler.Sample(logits, spec, unseen);
  spec.penalties.context = all;
  const Sampled whole = sampler.Sample(logits, spec);
  // 1/2, 2/2 - 0.25 - 2 * 0.5, -1*2, 0.5/2 - 0.25 - 0.5
  const std::vector<double> adjusted = {0.5, -0.25, -2, -0.5};
  double total = 0;
  for (double x : adjusted) total += std::exp(x);
  EXPECT_EQ(whole.token, 0);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(split.top[i].token, whole.top[i].token);
    EXPECT_EQ(split.top[i].logprob, whole.top[i].logprob);
    EXPECT_NEAR(whole.top[i].logprob, adjusted[size_t(whole.top[i].token)] - std::log(total), 1e-6);
  }
  // Counts of one call do not leak into the next.
  spec.penalties.context = {}, spec.penalties.prompt_tokens = 0;
  EXPECT_EQ(sampler.Sample(logits, spec).token, 1);
}

TEST(Sampler, TopLogprobsDescendAndPreferLowIds) {
  Sampler sampler;
  std::vector<float> logits(5000, 0.f);
  logits[4000] = 3, logits[10] = 2, logits[9] = 2;
  const Sampled sampled = sampler.Sample(logits, {.temperature = 1, .top_logprobs = 5});
  const std::vector<TokenId> expected = {4000, 9, 10, 0, 1};
  ASSERT_EQ(sampled.top.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sampled.top[i].token, expected[i]);
  const std::vector<float> few = {0.f, 1.f};
  EXPECT_EQ(sampler.Sample(few, {.top_logprobs = 20}).top.size(), 2u);
}

TEST(Sampler, AllocatesNothingOnceWarm) {
  Sampler sampler;
  std::vector<float> logits(5000);
  std::mt19937 generator(4);
  std::normal_distribution<float> normal(0, 1);
  for (float& l : logits) l = normal(generator);
  const std::vector<TokenId> context = {5, 6, 5, 7, 4999};
  const std::vector<std::pair<TokenId, float>> bias = {{4, 1.5f}};
  std::vector<SampleSpec> specs = {{},
                                   {.temperature = 1},
                                   {.temperature = 1, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f},
                                   {.temperature = 1, .top_k = 3000},
                                   {.temperature = 2, .top_p = 0.999f},
                                   {.temperature = 0.7f, .bias = bias}};
  specs.back().penalties = {
      .repetition = 1.1f, .presence = 1, .frequency = 1, .context = context, .prompt_tokens = 2};
  const auto run = [&] {
    for (const SampleSpec& spec : specs) sampler.Sample(logits, spec, {context.data(), 1});
  };
  run();
  const int before = allocations;
  run();
  EXPECT_EQ(allocations, before);
}

TEST(CheckSampleSpec, NamesTheField) {
  const auto message = [](const SampleSpec& spec) -> std::string {
    try {
      CheckSampleSpec(spec, 100);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kBadRequest);
      return e.what();
    }
    return "";
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto penalties = [](Penalties p) {
    SampleSpec spec;
    spec.penalties = p;
    return spec;
  };
  const std::vector<TokenId> context = {1, 100};
  std::vector<std::pair<TokenId, float>> bias = {{99, -100.f}};
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(
      message(
          {.temperature = 100, .top_k = 1000, .top_p = 1e-9f, .min_p = 1, .bias = bias, .top_logprobs = 20}),
      "");
  EXPECT_EQ(message({.temperature = -1}), "temperature is -1: give a number from 0 to 100");
  EXPECT_EQ(message({.temperature = nan}), "temperature is nan: give a number from 0 to 100");
  EXPECT_NE(message({.temperature = 101}), "");
  EXPECT_EQ(message({.top_k = -1}), "top_k is -1: give 0 (off) or more");
  EXPECT_EQ(message({.top_p = 0}), "top_p is 0: give a number above 0 and at most 1 (off)");
  EXPECT_NE(message({.top_p = 1.5f}), "");
  EXPECT_NE(message({.top_p = nan}), "");
  EXPECT_NE(message({.min_p = -0.1f}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.min_p = nan}), "");
  EXPECT_NE(message({.top_logprobs = 21}).find("top_logprobs"), std::string::npos);
  EXPECT_NE(message(penalties({.repetition = 0})).find("repetition penalty"), std::string::npos);
  EXPECT_NE(message(penalties({.repetition = kInfinity})), "");
  EXPECT_NE(message(penalties({.presence = nan})).find("presence penalty"), std::string::npos);
  EXPECT_NE(message(penalties({.frequency = -kInfinity})).find("frequency penalty"), std::string::npos);
  EXPECT_NE(message(penalties({.prompt_tokens = 1})).find("prompt_tokens"), std::string::npos);
  EXPECT_EQ(message(penalties({.presence = 1, .context = context})),
            "token 100 of the context is outside the vocabulary of 100");
  for (auto bad : {std::pair{100, 1.f}, {-1, 1.f}, {5, nan}, {5, kInfinity}}) {
    bias = {bad};
    EXPECT_NE(message({.bias = bias}).find("logit bias"), std::string::npos);
  }
}

}  // namespace
}  // namespace pd
