// Tests the scheduler with written schedules and with random runs.
#include "serving/scheduler.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <sstream>

#include "base/files.h"
#include "tests/serving/lane_world.h"

namespace pd::test {
namespace {

// ---- written schedules: a file of schedules/ holds events and, indented, the jobs and notices they cause
// ----

std::string Describe(const Job& job) {
  if (const auto* j = std::get_if<OpenSlot>(&job))
    return fmt::format("open {} for {}", j->request, j->capacity);
  if (const auto* j = std::get_if<PrefillChunk>(&job))
    return fmt::format("prefill {} {}+{}{}", j->request, j->first, j->count,
                       j->begin ? fmt::format(" of {}", j->begin->capacity) : "");
  if (const auto* j = std::get_if<EndPrefill>(&job)) return fmt::format("end prefill {}", j->request);
  if (const auto* j = std::get_if<ImportSegment>(&job))
    return fmt::format("import {} {}+{}", j->request, j->segment.first, j->segment.count);
  if (const auto* j = std::get_if<SubmitStep>(&job)) {
    if (j->sample.empty()) return fmt::format("rows {} {}+{}", j->request[0], j->pos[0], j->ids.size());
    std::string text = "step";
    for (size_t i = 0; i < j->ids.size(); ++i)
      text += fmt::format(" {}@{}{}", j->request[i], j->pos[i], j->ids[i] == kLastSampled ? "?" : "");
    return text;
  }
  if (std::holds_alternative<CollectStep>(job)) return "collect";
  if (const auto* j = std::get_if<ExportSegment>(&job))
    return fmt::format("export {} {}+{}", j->request, j->first, j->count);
  if (const auto* j = std::get_if<TruncateSlot>(&job))
    return fmt::format("truncate {} to {}", j->request, j->count);
  return fmt::format("close {}", std::get<CloseSlot>(job).request);
}

std::string Describe(const Notice& notice) {
  if (const auto* out = std::get_if<TokenOut>(&notice))
    return fmt::format("{} says {}", out->request, out->sampled.token);
  if (const auto* warned = std::get_if<Warned>(&notice)) return "warning: " + warned->message;
  const auto& [id, result] = std::get<Ended>(notice);
  std::string text = fmt::format("{} ends: {}, {} tokens", id, Name(result.finish), result.tokens.size());
  if (result.finish == FinishReason::kError)
    text += fmt::format(", {}: {}", Name(result.failure.kind), result.failure.message);
  if (!result.stats.fallback.empty()) text += fmt::format(", fell back: {}", result.stats.fallback);
  return text;
}

// The values of "name=number" in a line, by name.
class Words {
 public:
  explicit Words(const std::string& line) : in_(line) {
    for (std::string word; in_ >> word;) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        plain.push_back(word);
      } else {
        values_[word.substr(0, equals)] = std::stoi(word.substr(equals + 1));
      }
    }
  }
  int operator()(const std::string& name, int fallback) const {
    const auto at = values_.find(name);
    return at == values_.end() ? fallback : at->second;
  }
  int Number(size_t i) const { return std::stoi(plain.at(i)); }
  std::vector<std::string> plain;

 private:
  std::istringstream in_;
  std::map<std::string, int> values_;
};

// A device that takes chunks from multiples of `grid` to the next, and up to `most` tokens.
std::function<int(int)> ReachOf(int most, int grid) {
  if (most == INT_MAX && grid == 1) return {};
  return [most, grid](int first) {
    const int end = grid == 1 ? INT_MAX : first % grid == 0 ? first + grid : first;
    return std::max(first, std::min(most, end));
  };
}

// options lanes=2 max_rows=16 kv_limit=1000 even_slots=1 runs_ahead=1 max_queued=9 max_tokens=9 grid=4
SchedulerOptions ReadOptions(const Words& words) {
  SchedulerOptions options;
  options.lanes = words("lanes", 2);
  options.max_rows = words("max_rows", 16);
  options.runs_ahead = words("runs_ahead", 1) != 0;
  options.slot_bytes = BytesPerToken(1);
  options.even_slots = words("even_slots", 0) != 0;
  options.kv_limit = size_t(words("kv_limit", 1000));
  options.max_queued = words("max_queued", 100);
  if (options.lanes > 0 && words("units", 1) > 0)
    options.prefill = {{"ane", options.lanes - 1, ReachOf(words("max_tokens", INT_MAX), words("grid", 1)),
                        BytesPerToken(1)}};
  return options;
}

Arrived ReadArrival(const Words& words) {
  Request request;
  request.prompt.assign(size_t(words("prompt", 1)), 5);
  request.max_tokens = words("max", 1);
  request.prefill_chunk = words("chunk", 512);
  request.timeout_ms = words("timeout", 0);
  request.prefill_is_named = words("named", 0) != 0;
  if (const int end = words("end", -1); end >= 0) request.end_tokens = {end};
  const RequestPlan plan{request.max_tokens, words("prompt", 1) + std::max(request.max_tokens, 1) - 1, {}};
  return {RequestId(words.Number(1)), std::make_shared<const Request>(std::move(request)), plan};
}

// Text `index` of request `id` is token 10 id + index.
void Play(LaneWorld& world, const Words& words) {
  const std::string& verb = words.plain.at(0);
  const bool ends_job = verb == "done" || verb == "fail";
  if (ends_job && !world.running(words.Number(1))) {
    ADD_FAILURE() << "lane " << words.Number(1) << " runs no job";
    return;
  }
  if (verb == "arrive") {
    world.On(ReadArrival(words));
  } else if (verb == "cancel") {
    world.On(Cancelled{RequestId(words.Number(1))});
  } else if (verb == "stop") {
    world.On(Stopped{RequestId(words.Number(1)), {}});
  } else if (verb == "tick") {
    world.On(Tick{double(words.Number(1))});
  } else if (verb == "done") {
    world.Succeed(words.Number(1));
  } else if (verb == "fail") {
    const std::string why = words.plain.size() > 2 ? words.plain[2] : "";
    world.FailJob(words.Number(1), why == "unsupported" ? ErrorKind::kUnsupported
                                   : why == "cancelled" ? ErrorKind::kCancelled
                                                        : ErrorKind::kDevice);
  } else {
    ADD_FAILURE() << "no such event: " << verb;
  }
}

class Schedules : public ::testing::TestWithParam<std::string> {};

TEST_P(Schedules, AreKept) {
  const std::string expected = ReadTextFile("tests/serving/schedules/" + GetParam() + ".txt");
  std::istringstream in(expected);
  std::string actual;
  std::unique_ptr<LaneWorld> world;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("  ")) continue;  // what the scheduler should say
    actual += line + "\n";
    if (line.empty() || line.starts_with("#")) continue;
    const Words words(line);
    if (words.plain[0] == "options") {
      world = std::make_unique<LaneWorld>(ReadOptions(words));
      world->token = [](RequestId id, int index) { return TokenId(10 * id) + index; };
      world->on_job = [&](LaneId lane, const Job& job) {
        actual += fmt::format("  lane {}: {}\n", lane, Describe(job));
      };
      world->on_notice = [&](const Notice& notice) { actual += fmt::format("  {}\n", Describe(notice)); };
    } else {
      Play(*world, words);
    }
  }
  EXPECT_EQ(actual, expected);
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("tests/serving/schedules"))
    names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Scheduler, Schedules, ::testing::ValuesIn(ScheduleNames()),
                         [](const auto& schedule) { return schedule.param; });

// ---- random runs ----

// One run: requests, cancels, failures and ticks in random order.
class RandomRun {
 public:
  explicit RandomRun(unsigned seed)
      : random_(seed), cache_(kSpec, size_t(Below(2000)), false), world_(Options()) {
    world_.token = [this](RequestId id, int index) { return TokenOf(id, index); };
  }

  void Run() {
    const int events = Below(60) + 5;
    for (int i = 0; i < events; ++i) Anything();
    for (int i = 0; !world_.scheduler.idle(); ++i) {
      ASSERT_LT(i, 5000) << "it never ends";
      ASSERT_TRUE(FinishSomeJob()) << "nothing runs, and requests wait";
    }
    for (const auto& [id, request] : world_.requests()) CheckAnswer(id, request);
    EXPECT_EQ(world_.open_slots(), 0u);
    EXPECT_EQ(world_.open_sessions(), 0u);
    EXPECT_EQ(world_.uncollected(), 0u);
    EXPECT_EQ(world_.scheduler.kv_bytes(), 0u);
  }

 private:
  int Below(int n) { return int(random_() % unsigned(n)); }
  bool OneIn(int n) { return Below(n) == 0; }

  SchedulerOptions Options() {
    SchedulerOptions options;
    options.lanes = 1 + Below(3);
    options.decode_lane = Below(options.lanes);
    options.max_rows = 1 + Below(6);
    options.runs_ahead = OneIn(2);
    options.slot_bytes = BytesPerToken(size_t(1 + Below(3)));
    options.kv_limit = size_t(40 + Below(200));
    options.even_slots = OneIn(3);
    options.max_queued = 1 + Below(6);
    options.max_running = 1 + Below(6);
    if (OneIn(2)) options.cache = &cache_;
    for (int unit = Below(3); unit-- > 0;)
      options.prefill.push_back({"unit", Below(options.lanes),
                                 ReachOf(OneIn(3) ? Below(30) : INT_MAX, OneIn(4) ? 1 + Below(9) : 1),
                                 BytesPerToken(size_t(Below(3)))});
    if (OneIn(2))
      options.choose = [this, units = options.prefill.size()](const PrefillQuestion& question) {
        EXPECT_EQ(question.queued.size(), units + 1);
        PrefillChoice choice{std::nullopt, 1 + Below(9), "chance"};
        if (units > 0 && !OneIn(4)) choice.unit = size_t(Below(int(units)));
        return choice;
      };
    return options;
  }

  TokenId TokenOf(RequestId id, int index) const {
    return TokenId((id * 2654435761u + unsigned(index) * 40503u) >> 4) % 50;
  }

  void Arrive() {
    Request request;
    request.prompt.resize(size_t(1 + Below(40)));
    const int root = Below(2);  // prompts begin alike
    for (size_t i = 0; i < request.prompt.size(); ++i)
      request.prompt[i] = OneIn(40) ? Below(50) : TokenId(i * 7 + size_t(root)) % 50;
    request.max_tokens = Below(12);
    request.prefill_chunk = 1 + Below(20);
    if (OneIn(3)) request.end_tokens = {Below(50), Below(50)};
    if (OneIn(4)) request.timeout_ms = 1 + Below(40);
    if (OneIn(5)) request.sample.penalties.repetition = 1.1f;
    request.prefill_is_named = OneIn(3);
    const RequestPlan plan{
        request.max_tokens, int(request.prompt.size()) + std::max(request.max_tokens, 1) - 1, {}};
    world_.On(Arrived{++last_id_, std::make_shared<const Request>(std::move(request)), plan});
  }

  void Anything() {
    const int what = Below(20);
    if (what < 3) return Arrive();
    if (what == 3 && last_id_ > 0) {
      const auto id = RequestId(1 + Below(int(last_id_)));
      cancelled_.insert(id);
      return world_.On(Cancelled{id});
    }
    if (what == 4 && last_id_ > 0) {
      const auto id = RequestId(1 + Below(int(last_id_)));
      // A reader wants no more only after it has read something.
      const auto& request = world_.requests().at(id);
      if (request.heard.empty() || request.end) return;
      stopped_.insert(id);
      return world_.On(Stopped{id, {}});
    }
    if (what == 5) return world_.On(Tick{now_ += Below(10)});
    FinishSomeJob();
  }

  bool FinishSomeJob() {
    std::vector<LaneId> busy;
    for (LaneId lane = 0; lane < 3; ++lane)
      if (HasLane(lane) && world_.running(lane)) busy.push_back(lane);
    if (busy.empty()) return false;
    const LaneId lane = busy[size_t(Below(int(busy.size())))];
    if (OneIn(fail_every_)) {
      ++failures_;
      world_.FailJob(lane, OneIn(4) ? ErrorKind::kUnsupported : ErrorKind::kDevice);
    } else {
      world_.Succeed(lane, 1);
    }
    return true;
  }
  bool HasLane(LaneId lane) const { return lane < lanes_; }

  void CheckAnswer(RequestId id, const LaneWorld::Known& request) const {
    ASSERT_TRUE(request.end) << "request " << id << " was never answered";
    const RequestResult& result = *request.end;
    std::vector<TokenId> text;
    bool ended = false;
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      EXPECT_FALSE(ended) << "text after its end";
      EXPECT_EQ(result.tokens[i], TokenOf(id, int(i)));
      ended = std::ranges::find(request.of->end_tokens, result.tokens[i]) != request.of->end_tokens.end();
      if (!ended) text.push_back(result.tokens[i]);
    }
    EXPECT_EQ(request.heard, text);
    switch (result.finish) {
      case FinishReason::kStop:
        EXPECT_TRUE(ended || stopped_.contains(id));
        break;
      case FinishReason::kLength:
        EXPECT_EQ(int(result.tokens.size()), request.of->max_tokens);
        break;
      case FinishReason::kCancelled:
        EXPECT_TRUE(cancelled_.contains(id));
        break;
      case FinishReason::kTimeout:
        EXPECT_GT(request.of->timeout_ms, 0);
        EXPECT_GE(result.stats.total_ms, request.of->timeout_ms);
        break;
      case FinishReason::kError:
        EXPECT_TRUE(failures_ > 0 || result.failure.kind == ErrorKind::kBusy ||
                    result.failure.kind == ErrorKind::kOutOfMemory)
            << result.failure.message;
        break;
    }
    EXPECT_TRUE(result.stats.fallback.empty() || failures_ > 0 ||
                result.stats.fallback.starts_with("there is"));
  }

  static inline const ModelSpec kSpec = WorldSpec();
  std::mt19937 random_;
  PrefixCache cache_;
  const int fail_every_ = OneIn(2) ? 1000000 : 4 + Below(30);
  LaneWorld world_;
  const int lanes_ = world_.lanes();
  RequestId last_id_ = 0;
  std::set<RequestId> cancelled_, stopped_;
  double now_ = 0;
  int failures_ = 0;
};

#ifdef __SANITIZE_ADDRESS__
constexpr unsigned kRandomRuns = 20000;  // fifteen times as slow
#else
constexpr unsigned kRandomRuns = 100000;
#endif

// How often requests are looked at while `count` of them, which all arrive at once, are served.
uint64_t LooksFor(int count, int max_running) {
  SchedulerOptions options;
  options.lanes = 2;
  options.max_rows = max_running;
  options.runs_ahead = false;
  options.slot_bytes = BytesPerToken(1);
  options.max_running = max_running;
  options.prefill = {{"ane", 1, {}, BytesPerToken(1)}};
  LaneWorld world(options);
  world.On(Tick{1});
  for (int id = 1; id <= count; ++id) {
    Request request;
    request.prompt.assign(4, 5);
    request.max_tokens = 3;
    request.timeout_ms = 1e9;
    world.On(Arrived{RequestId(id), std::make_shared<const Request>(std::move(request)), {3, 6, {}}});
  }
  double now = 1;
  while (!world.scheduler.idle())
    for (const LaneId lane : {0, 1})
      if (world.running(lane)) {
        world.On(Tick{++now});
        world.Succeed(lane);
      }
  for (const auto& [id, request] : world.requests()) EXPECT_EQ(request.end->finish, FinishReason::kLength);
  return world.scheduler.looks();
}

TEST(Scheduler, CostsByTheRequestsServedAndNotByThoseThatWait) {
  const auto once = double(LooksFor(500, 8)), twice = double(LooksFor(1000, 8));
  EXPECT_NEAR(twice / once, 2, 0.05);
  EXPECT_LT(once / 500, 100);
  // Nor by the requests that run beside it.
  EXPECT_LT(double(LooksFor(500, 64)), 1.5 * once);
}

TEST(Scheduler, KeepsItsPromisesInRandomRuns) {
  for (unsigned seed = 0; seed < kRandomRuns; ++seed) {
    RandomRun(seed).Run();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pd::test
