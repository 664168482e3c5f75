// Random mixes of requests: a request has the same text as alone, whatever else runs, fails or is cached.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <future>
#include <random>
#include <thread>

#include "serving/engine.h"
#include "tests/serving/faulty_devices.h"
#include "tests/temp_folder.h"

namespace pd::test {

class Mixes {
 public:
  struct Known {
    std::vector<TokenId> prompt, text;
  };
  struct Options {
    int longest = 900;  // prompt, in tokens
    int prompts = 60;
    int text = 24;  // tokens of each
    int vocab = 0;
    // The text of a prompt that runs alone.
    std::function<std::vector<TokenId>(const std::vector<TokenId>& prompt, int count)> alone = {};
    // Devices with faults, on one lane or two; `max_rows` of a decode step.
    std::function<EngineDevices(int lanes, const Faults&, int max_rows)> devices = {};
    // Says whether `tokens` will do where known.text begins with `expected`.
    std::function<void(const Known& known, const std::vector<TokenId>& tokens,
                       const std::vector<TokenId>& expected)>
        judge = {};
    std::function<void()> leave_lane = {};
  };

  Mixes(ModelSpec spec, Options options) : spec_(std::move(spec)), options_(std::move(options)) {
    // Prompts of any length that share beginnings of any length.
    std::vector<std::vector<TokenId>> roots(4, std::vector<TokenId>(size_t(options_.longest)));
    for (auto& root : roots)
      for (TokenId& id : root) id = Below(options_.vocab);
    for (int i = 0; i < options_.prompts; ++i) {
      const auto& root = roots[size_t(Below(4))];
      const int length = 1 + (Below(3) == 0 ? Below(options_.longest) : Below(120));
      Known known{{root.begin(), root.begin() + length}, {}};
      if (Below(2) == 0)
        for (int n = std::min(length, 1 + Below(30)); n > 0; --n)
          known.prompt[size_t(length - n)] = Below(options_.vocab);
      known.text = options_.alone(known.prompt, options_.text);
      known_.push_back(std::move(known));
    }
  }

  void Run(int count) {
    for (int i = 0; i < count; ++i) {
      RunMix(i);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "mix " << i;
    }
    EXPECT_GT(cached_, count / 4) << "the mixes have no prefix hits to speak of";
    EXPECT_GT(fell_back_, count / 4) << "the mixes have no failures to speak of";
  }

 private:
  int Below(int n) { return int(random_() % unsigned(n)); }

  void RunMix(int number) {
    const int lanes = 1 + Below(2);
    EngineOptions options;
    options.leave_lane = options_.leave_lane;
    options.max_running = 1 + Below(8);
    if (Below(2) == 0) options.prefix_cache_bytes = size_t(1) << (16 + Below(8));
    if (options.prefix_cache_bytes > 0 && Below(3) == 0) options.disk_cache = folder_.path() / "kv";
    if (Below(3) == 0) options.kv_limit = size_t(4) << 20;
    const Faults faults{Below(3) == 0 ? 1 + Below(6) : 0, Below(3) == 0 ? 1 + Below(6) : 0, unsigned(number)};
    Engine engine(spec_, options_.devices(lanes, faults, 1 + Below(70)), options);

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
          .prompt = a.known->prompt, .max_tokens = Below(options_.text + 1), .prefill_chunk = 1 + Below(200)};
      if (Below(3) == 0) a.request.end_tokens = {a.known->text[size_t(Below(options_.text))]};
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
        if (result.tokens.size() < expected.size()) expected.resize(result.tokens.size());
      } else {
        EXPECT_NE(result.finish, FinishReason::kError) << result.failure.message;
      }
      options_.judge(*a.known, result.tokens, expected);
      cached_ += result.stats.cached_tokens > 0;
      fell_back_ += !result.stats.fallback.empty();
    }
  }

  const ModelSpec spec_;
  const Options options_;
  std::mt19937 random_{17};
  std::vector<Known> known_;
  const TempFolder folder_;
  int cached_ = 0, fell_back_ = 0;
};

}  // namespace pd::test
