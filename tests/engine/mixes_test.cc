// Answers do not depend on scheduling: whatever else runs, whatever fails, whatever was cached, a request's
// text is the one it has alone, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "tests/cli/temp_folder.h"
#include "tests/engine/cpu_engine.h"

namespace pd::test {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kMixes = 50;  // ten times as slow
#else
constexpr int kMixes = 200;
#endif
constexpr int kText = 24;

class Mixes : public ::testing::Test {
 protected:
  Mixes() {
    // Prompts of 1 to 900 tokens that share beginnings of any length.
    std::vector<std::vector<TokenId>> roots(4, std::vector<TokenId>(900));
    for (auto& root : roots)
      for (TokenId& id : root) id = Below(Spec().vocab);
    for (int i = 0; i < 60; ++i) {
      const auto& root = roots[size_t(Below(4))];
      const int length = 1 + (Below(3) == 0 ? Below(900) : Below(120));
      Known known{{root.begin(), root.begin() + length}, {}};
      if (Below(2) == 0)
        for (int n = std::min(length, 1 + Below(30)); n > 0; --n)
          known.prompt[size_t(length - n)] = Below(Spec().vocab);
      known.text = model_.GreedyText(known.prompt, kText);
      known_.push_back(std::move(known));
    }
  }

  struct Known {
    std::vector<TokenId> prompt, text;
  };

  const ModelSpec& Spec() const { return model_.spec(); }
  int Below(int n) { return int(random_() % unsigned(n)); }

  void RunMix(int number) {
    const int lanes = 1 + Below(2);
    EngineOptions options;
    options.max_running = 1 + Below(8);
    if (Below(2) == 0) options.prefix_cache_bytes = size_t(1) << (16 + Below(8));
    if (options.prefix_cache_bytes > 0 && Below(3) == 0) options.disk_cache = folder_.path() / "kv";
    if (Below(3) == 0) options.kv_limit = size_t(4) << 20;
    const Faults faults{Below(3) == 0 ? 1 + Below(6) : 0, Below(3) == 0 ? 1 + Below(6) : 0, unsigned(number)};
    Engine engine(Spec(), model_.Devices(lanes, faults, 1 + Below(70)), options);

    struct Asked {
      const Known* known;
      Request request;
      std::future<RequestResult> result;
      bool cancelled = false;
    };
    std::vector<Asked> asked(size_t(3 + Below(8)));
    for (Asked& a : asked) {
      a.known = &known_[size_t(Below(int(known_.size())))];
      a.request = {
          .prompt = a.known->prompt, .max_tokens = Below(kText + 1), .prefill_chunk = 1 + Below(200)};
      if (Below(3) == 0) a.request.end_tokens = {a.known->text[size_t(Below(kText))]};
      const auto end = std::make_shared<std::promise<RequestResult>>();
      a.result = end->get_future();
      const RequestId id =
          engine.Submit(a.request, {{}, [end](RequestResult r) { end->set_value(std::move(r)); }});
      if (Below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(Below(3000)));
      if (Below(6) == 0) {
        engine.Cancel(id);
        a.cancelled = true;
      }
    }
    for (Asked& a : asked) {
      const RequestResult result = a.result.get();
      std::vector<TokenId> expected(a.known->text.begin(), a.known->text.begin() + a.request.max_tokens);
      for (const TokenId end : a.request.end_tokens)
        if (const auto at = std::ranges::find(expected, end); at != expected.end())
          expected.erase(at + 1, expected.end());
      if (result.finish == FinishReason::kCancelled) {
        EXPECT_TRUE(a.cancelled);
        ASSERT_LE(result.tokens.size(), expected.size());
        expected.resize(result.tokens.size());
      } else {
        EXPECT_NE(result.finish, FinishReason::kError) << result.failure.message;
      }
      EXPECT_EQ(result.tokens, expected) << "mix " << number;
      cached_ += result.stats.cached_tokens > 0;
      fell_back_ += !result.stats.fallback.empty();
    }
  }

  std::mt19937 random_{17};
  const CpuModelForTests model_;
  std::vector<Known> known_;
  const TempFolder folder_;
  int cached_ = 0, fell_back_ = 0;
};

TEST_F(Mixes, GiveEveryRequestItsOwnText) {
  for (int i = 0; i < kMixes; ++i) {
    RunMix(i);
    ASSERT_FALSE(HasFailure()) << "mix " << i;
  }
  EXPECT_GT(cached_, kMixes / 4) << "the mixes have no prefix hits to speak of";
  EXPECT_GT(fell_back_, kMixes / 4) << "the mixes have no failures to speak of";
}

}  // namespace
}  // namespace pd::test
