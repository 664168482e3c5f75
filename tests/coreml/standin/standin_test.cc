// The runtime over stand-ins of Core ML's classes: what it does with a model, with other processes, with
// states.
#include <unistd.h>

#include <thread>

#include "tests/coreml/standin/fixture.h"

namespace pd::test {
namespace {

// This program again, as a trial or as a second process: main() below.
std::string Self() { return fs::read_symlink("/proc/self/exe").string(); }

// ---- in good health ----

TEST_F(StandIn, GivesTheInterpretersBits) {
  Open(Options());
  ExpectSameBits();
  EXPECT_EQ(Say().prefill_tokens, kPrompt);
  const RuntimeReport report = runtime_->Report();
  EXPECT_EQ(report.disabled, "");
  EXPECT_EQ(report.retries + report.reloads + report.recompiles + report.fallbacks, 0u);
  EXPECT_EQ(report.copies + report.distrusted, 0u) << "results came in the memory that was offered";
  ASSERT_EQ(report.functions.size(), 4u);  // two of each package
  for (const FunctionReport& f : report.functions) {
    EXPECT_EQ(f.disabled, "");
    EXPECT_TRUE(f.compiled_here);
    EXPECT_GE(f.predictions, 2u);
    ASSERT_TRUE(f.placement && f.verdict && f.verdict->engagement);
    EXPECT_EQ(f.placement->on_engine, f.placement->ops);
    EXPECT_EQ(f.verdict->engagement->verdict, Engagement::Verdict::kEngaged);
  }
  EXPECT_EQ(director().Calls(Call::kCompile), 2);
}

TEST_F(StandIn, TheSecondStartCompilesAndMeasuresNothing) {
  Open(Options());
  Say();
  director().Reset();
  Open(Options());
  EXPECT_EQ(Say().prefill_tokens, kPrompt);
  EXPECT_EQ(director().Calls(Call::kCompile), 0);
  EXPECT_EQ(director().Calls(Call::kPlan), 0);
  EXPECT_EQ(director().Calls(Call::kLoad), 4);     // none for the processor alone
  EXPECT_EQ(director().Calls(Call::kPredict), 6);  // three chunks, two packages
}

TEST_F(StandIn, SegmentsKeepTheirMemoryAndGiveItBack) {
  Open(Options());
  Say();
  const int before = director().Calls(Call::kSurface);
  {
    const std::vector<KvSegment> held = world().Prefill(*device_);
    const std::vector<float> first = Numbers(world().model.spec, held[0]);
    const int more = director().Calls(Call::kSurface);
    EXPECT_GT(more, before);  // the third chunk's, while two are held
    world().Prefill(*device_);
    EXPECT_EQ(Numbers(world().model.spec, held[0]), first);
  }
  const int after = director().Calls(Call::kSurface);
  for (int i = 0; i < 3; ++i) Say();
  EXPECT_EQ(director().Calls(Call::kSurface), after) << "buffers are used again";
}

TEST_F(StandIn, SegmentsOutliveTheDevice) {
  Open(Options());
  std::vector<KvSegment> held = world().Prefill(*device_);
  device_.reset();
  runtime_.reset();
  EXPECT_EQ(Numbers(world().model.spec, held[1]), Numbers(world().model.spec, world().segments[1]));
  std::thread([&] { held.clear(); }).join();  // on another thread, as a lane would
}

TEST_F(StandIn, FewFunctionsStayLoaded) {
  for (const int resident : {1, 2}) {
    RuntimeOptions options = Options();
    options.resident_functions = resident;
    Open(options);
    Say();
    director().Reset();
    for (int i = 0; i < 3; ++i) Say();
    // With one, each of the two functions of both packages is loaded again for each prompt.
    EXPECT_EQ(director().Calls(Call::kLoad), resident == 1 ? 12 : 0);
  }
}

TEST_F(StandIn, TheNextFunctionLoadsWhileThisOneRuns) {
  Open(Options());
  Say();
  Open(Options());  // all is known, nothing loaded
  director().Reset();
  const auto session = device_->Begin(kPrompt, {}, {});
  session->Run(std::span(world().prompt).first(kChunk), 0);
  // Nobody asks for anything, and yet the second chunk's functions come.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (director().Calls(Call::kLoad) < 4 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(director().Calls(Call::kLoad), 4);
  const KvSegment second = session->Run(std::span(world().prompt).subspan(kChunk, kChunk), kChunk);
  EXPECT_EQ(director().Calls(Call::kLoad), 4);
  EXPECT_EQ(Numbers(world().model.spec, second), Numbers(world().model.spec, world().segments[1]));
}

// A load in the background that fails is no failure: it is tried again when it is wanted.
TEST_F(StandIn, ALoadAheadMayFail) {
  Open(Options());
  Say();
  Open(Options());
  director().Reset();
  director().On(Call::kLoad, 3, {Kind::kError});
  const RequestStats stats = Say();
  EXPECT_EQ(stats.prefill_tokens, kPrompt);
  EXPECT_EQ(runtime_->Report().retries, 0u);
}

TEST_F(StandIn, WhatFailsThreeTimesInARowIsGivenUp) {
  Open(Options());
  Say();
  director().Reset();
  director().On(Call::kPredict, 0, {Kind::kError});
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(DisabledFunctions(), 0);
    EXPECT_NE(Say().fallback, "");
  }
  EXPECT_EQ(DisabledFunctions(), 1);
  EXPECT_TRUE(Told("3 times in a row"));
  const RequestStats stats = Say();  // the other function takes over, fails as well, and so on
  EXPECT_EQ(stats.prefill_tokens, 0);
}

TEST_F(StandIn, AnEngineThatDoesNotRunIsSaidOnceAndRemembered) {
  director().engine_ms = 10;
  Open(Options());
  EXPECT_EQ(Say().prefill_tokens, 0);
  Say();
  EXPECT_EQ(DisabledFunctions(), 2);
  EXPECT_TRUE(Told("it runs on the processor"));
  EXPECT_EQ(std::ranges::count_if(notes_, [](const std::string& n) { return n.find("processor") != n.npos; }),
            2);
  for (const FunctionReport& f : runtime_->Report().functions)
    if (f.verdict && f.verdict->engagement) {
      EXPECT_EQ(f.verdict->engagement->verdict, Engagement::Verdict::kNotEngaged);
    }

  director().Reset();
  Open(Options());
  EXPECT_EQ(Say().prefill_tokens, 0);
  EXPECT_EQ(director().Calls(Call::kLoad), 0) << "known from the first time";
  EXPECT_TRUE(Told("determined earlier"));

  RuntimeOptions updated = Options();  // another system: it is looked at again
  updated.os_build = "24B83";
  Open(updated);
  EXPECT_EQ(Say().prefill_tokens, kPrompt);
}

TEST_F(StandIn, ACompileThatTakesTooLongCanBeCancelled) {
  director().On(Call::kCompile, 0, {Kind::kSlow, 1500});
  RuntimeOptions options = Options();
  const auto begin = std::chrono::steady_clock::now();
  options.cancelled = [&] {
    return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(50);
  };
  try {
    Open(options);
    ADD_FAILURE() << "it was not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCancelled);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1490));
  director().Settle();  // the compiler ends after all, and what it made is removed
  for (const auto& item : fs::directory_iterator(fs::temp_directory_path()))
    EXPECT_FALSE(item.path().filename().string().starts_with(fmt::format("pd_standin_{}_", getpid())));
}

TEST_F(StandIn, ALoadCanBeCancelled) {
  director().On(Call::kLoad, 0, {Kind::kSlow, 200});
  RuntimeOptions options = Options();
  std::atomic<bool> cancelled{false};
  options.cancelled = [&] { return bool(cancelled); };
  Open(options);
  cancelled = true;
  try {
    world().Prefill(*device_);
    ADD_FAILURE() << "it was not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCancelled);
  }
  cancelled = false;
  EXPECT_EQ(Say().prefill_tokens, kPrompt);  // nothing was concluded from it
}

TEST_F(StandIn, ModelsThatAreNotKeptWorkToo) {
  RuntimeOptions options = Options();
  options.cache_folder = "/proc/pd_engine";
  Open(options);
  EXPECT_EQ(Say().prefill_tokens, kPrompt);
  EXPECT_TRUE(Told("are not kept"));
}

// ---- the trial ----

Trial TrialOf(const char* mode, double most_seconds = 60) {
  return TrialByProcess({Self(), "--trial", mode}, most_seconds);
}

TEST_F(StandIn, FunctionsAreTriedInAProcessOfTheirOwn) {
  RuntimeOptions options = Options();
  options.trial = TrialOf("well");
  Open(options);
  EXPECT_EQ(Say().prefill_tokens, kPrompt);
  for (const FunctionReport& f : runtime_->Report().functions) EXPECT_TRUE(f.verdict && f.verdict->tried);
  options.trial = TrialOf("killed");  // and once only
  Open(options);
  EXPECT_EQ(Say().prefill_tokens, kPrompt);
}

TEST_F(StandIn, ATrialThatEndsBadly) {
  struct Bad {
    const char* mode;
    const char* said;
    uint64_t retries, recompiles;
  };
  for (const Bad& bad : {Bad{"killed", "killed by signal 9", 0, 1}, Bad{"hangs", "took more than", 0, 0},
                         Bad{"error", "ended: failed", 1, 1}, Bad{"stale", "ended: stale", 0, 1},
                         Bad{"missing", "ended: bad_result", 0, 1}, Bad{"leaves", "exit code 3", 1, 1}}) {
    const std::string mode = bad.mode;
    RuntimeOptions options = Options();
    options.cache_folder = folder_ / mode;
    // Of the first function only: the others are well.
    const std::string first = mil::FunctionName(world().bundle.functions[0]);
    options.trial = [&, process = TrialOf(bad.mode, mode == "hangs" ? 0.5 : 60)](
                        const fs::path& compiled, const std::string& function, const CancelCheck& cancelled) {
      return function == first ? process(compiled, function, cancelled) : Status{};
    };
    Open(options);
    EXPECT_EQ(Say().tail_tokens, 0) << mode << ": the larger function takes its tokens";
    EXPECT_EQ(DisabledFunctions(), 1) << mode;
    EXPECT_TRUE(Told(bad.said)) << mode;
    EXPECT_EQ(runtime_->Report().retries, bad.retries) << mode;
    EXPECT_EQ(runtime_->Report().recompiles, bad.recompiles) << mode;
  }
}

TEST_F(StandIn, ATrialThatCannotBegin) {
  RuntimeOptions options = Options();
  options.trial = TrialByProcess({(folder_ / "no_such_program").string()}, 60);
  Open(options);
  EXPECT_EQ(Say().prefill_tokens, 0);  // nothing is run here that was not tried
  EXPECT_EQ(DisabledFunctions(), 2);
}

TEST_F(StandIn, ATrialCanBeCancelled) {
  std::atomic<bool> cancelled{false};
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled = true;
  });
  const Status status = TrialOf("hangs")("nowhere", "f", [&] { return bool(cancelled); });
  later.join();
  EXPECT_EQ(status.code, Code::kCancelled);
}

// ---- two processes ----

TEST_F(StandIn, TwoProcessesCompileOnce) {
  // Each compiles the bundle's packages slowly and ends with the number of its compiles.
  const std::string cache = (folder_ / "cache").string(), bundle = world().bundle.path.string();
  std::vector<std::thread> threads;
  std::atomic<int> compiles{0};
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      const Status status = TrialByProcess({Self(), "--compile"}, 60)(cache, bundle, {});
      // "exit code N": this is no trial's
      compiles += status.message.back() - '0';
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiles, 2 + 2 * 1) << "two packages, and one more for each process that is counted";
  Open(Options());
  EXPECT_EQ(director().Calls(Call::kCompile), 0);
  EXPECT_EQ(Say().prefill_tokens, kPrompt);
}

// ---- states ----

class Stateful : public StandIn {
 protected:
  // y = sum of all x so far, and of the sum before.
  void SetUp() override {
    StandIn::SetUp();
    mil::Function main;
    main.opset = "CoreML8";
    const mil::TensorType type{mil::DataType::kF16, {1, 4, 1, 8}};
    main.inputs = {{"x", type}, {"sum", type, true}};
    const auto op = [](std::string kind, std::vector<mil::NamedType> outputs) {
      return mil::Operation{std::move(kind), {}, std::move(outputs), {}, {}};
    };
    mil::Operation read = op("read_state", {{"old", type}});
    read.inputs["input"] = {"sum"};
    mil::Operation add = op("add", {{"new", type}});
    add.inputs["x"] = {"old"}, add.inputs["y"] = {"x"};
    mil::Operation write = op("write_state", {});
    write.inputs["input"] = {"sum"}, write.inputs["data"] = {"new"};
    mil::Operation both = op("add", {{"y", type}});
    both.inputs["x"] = {"new"}, both.inputs["y"] = {"old"};
    main.body = {{}, {read, add, write, both}, {"y"}};
    WritePackage(folder_ / "state.mlpackage", Package{9, "", {{{"main", main}}, {}}, {}});
    Bundle bundle;
    bundle.path = folder_.path();
    runtime_ = std::make_unique<CoreMlRuntime>(MakeCoreMl(), bundle, Options());
    ours_ = runtime_->Open(folder_ / "state.mlpackage");
    theirs_ = InterpretedPredictors(std::make_shared<ThreadPool>(1))(folder_ / "state.mlpackage");
    for (int i = 0; i < 32; ++i) x_.push_back(ToF16(0.37f * float(i) - 2));
  }
  void TearDown() override {
    ours_.reset();
    StandIn::TearDown();
  }
  std::vector<uint16_t> Step(Predictor& predictor, PredictorState* state) {
    const mil::Dims shape = {1, 4, 1, 8};
    const HalfTensors y =
        predictor.Predict("main", {{"x", {shape, mil::DenseStrides(shape), x_.data(), nullptr}}}, state);
    std::vector<uint16_t> bits;
    for (int c = 0; c < 4; ++c)
      for (int t = 0; t < 8; ++t) {
        const HalfTensor& tensor = y.at("y");
        bits.push_back(tensor.data[c * tensor.strides[1] + t * tensor.strides[3]].bits);
      }
    return bits;
  }

  std::unique_ptr<Predictor> ours_, theirs_;
  std::vector<F16> x_;
};

TEST_F(Stateful, StatesGoOnAndAreApart) {
  const auto ours = ours_->NewState("main"), other = ours_->NewState("main"),
             theirs = theirs_->NewState("main");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Step(*ours_, ours.get()), Step(*theirs_, theirs.get())) << i;
  const auto fresh = theirs_->NewState("main");
  EXPECT_EQ(Step(*ours_, other.get()), Step(*theirs_, fresh.get()));
}

// What a failed prediction left in the states nobody knows: it is not repeated with them.
TEST_F(Stateful, AFailedPredictionIsNotRepeated) {
  const auto state = ours_->NewState("main");
  Step(*ours_, state.get());
  director().Reset();
  director().On(Call::kPredict, 1, {Kind::kError});
  EXPECT_THROW(Step(*ours_, state.get()), Error);
  EXPECT_EQ(director().Calls(Call::kPredict), 1);
  const auto ours = ours_->NewState("main"), theirs = theirs_->NewState("main");
  EXPECT_EQ(Step(*ours_, ours.get()), Step(*theirs_, theirs.get()));
}

TEST_F(Stateful, StatesThatCannotBeMade) {
  ours_->NewState("main");
  director().On(Call::kNewState, 1, {Kind::kSilent});
  EXPECT_NE(ours_->NewState("main"), nullptr);  // at the second try
  director().On(Call::kNewState, 0, {Kind::kException});
  EXPECT_THROW(ours_->NewState("main"), Error);
  director().Reset();
  EXPECT_THROW(theirs_->NewState("other"), Error);
}

// ---- the other processes ----

int RunTrial(const std::string& mode, const char* compiled, const char* function) {
  Director& director = Director::The();
  const std::map<std::string, Fault> faults = {{"killed", {Kind::kKilled}},
                                               {"hangs", {Kind::kSlow, 60'000}},
                                               {"error", {Kind::kError}},
                                               {"stale", {Kind::kError, kIo}},
                                               {"missing", {Kind::kMissing}}};
  if (mode == "leaves") return 3;
  if (const auto fault = faults.find(mode); fault != faults.end()) {
    director.On(Call::kLoad, 0, mode == "hangs" ? fault->second : Fault{});
    director.On(Call::kPredict, 0, fault->second);
  }
  const auto core_ml = MakeCoreMl();
  const int code = TrialExitCode(TryFunction(*core_ml, compiled, function));
  director.Settle();
  return code;
}

int RunCompile(const char* cache, const char* bundle) {
  Director& director = Director::The();
  director.On(Call::kCompile, 0, {Kind::kSlow, 200});
  RuntimeOptions options;
  options.cache_folder = cache;
  options.os_build = "24A335", options.machine = "Mac16,1";
  {
    const Bundle read = ReadBundle(bundle);
    const CoreMlRuntime runtime(MakeCoreMl(), read, options);
    for (const BundleShard& shard : read.shards) runtime.Open(read.path / shard.package);
  }
  director.Settle();
  return director.Calls(Call::kCompile) + 1;
}

}  // namespace
}  // namespace pd::test

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--trial") return pd::test::RunTrial(argv[2], argv[3], argv[4]);
  if (first == "--compile") return pd::test::RunCompile(argv[2], argv[3]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
