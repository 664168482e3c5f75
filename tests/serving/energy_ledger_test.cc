#include "serving/energy_ledger.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "power/meter_kinds.h"
#include "tests/serving/cpu_engine.h"

namespace pd::test {
namespace {

using Time = EnergyLedger::Time;

class FakeMeter final : public PowerMeter {
 public:
  explicit FakeMeter(PhysicalDevice device) : device_(std::move(device)) {}
  PhysicalDevice Device() const override { return device_; }
  std::string Source() const override { return "fake"; }
  std::optional<EnergyReading> Read() override {
    ++asked;
    if (on_read) on_read();
    return readable ? std::optional(EnergyReading{joules, until}) : std::nullopt;
  }
  bool readable = true;
  double joules = 100;
  Time until = Time::max();  // now
  int asked = 0;
  std::function<void()> on_read;

 private:
  PhysicalDevice device_;
};

const PhysicalDevice kCpu = {PhysicalDevice::Kind::kCpu, 0, {0}},
                     kOtherCore = {PhysicalDevice::Kind::kCpu, 0, {1}},
                     kGpu = {PhysicalDevice::Kind::kGpu, 0, {}};

Job StepOf(std::vector<RequestId> requests) {
  SubmitStep step;
  step.request = std::move(requests);
  step.sample.resize(step.request.size());
  return step;
}
Job ChunkOf(RequestId request) {
  PrefillChunk chunk;
  chunk.request = request;
  return chunk;
}

// A ledger whose clock stands still until it is told.
class Energy : public ::testing::Test {
 protected:
  void Open(const std::vector<std::shared_ptr<FakeMeter>>& meters, const std::vector<PhysicalDevice>& lanes) {
    ledger_ = EnergyLedger({meters.begin(), meters.end()}, lanes, [this] { return now_; });
  }
  void Pass(double seconds) {
    now_ += std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  }
  // A second in which the meter counts.
  void Pass(FakeMeter& meter, double joules) {
    meter.joules += joules;
    Pass(1);
  }
  RequestStats Taken(RequestId request) {
    RequestStats stats;
    ledger_.Take(request, stats);
    return stats;
  }
  // A chunk of a second on lane 0.
  void Prefill(RequestId request) {
    ledger_.Begin(0, ChunkOf(request));
    Pass(1);
    ledger_.End(0, false);
  }
  EnergyLedger ledger_;
  Time now_ = Time(std::chrono::hours(1));
};

void ExpectJoules(std::optional<double> joules, double expected) {
  EXPECT_TRUE(joules);
  EXPECT_NEAR(joules.value_or(-1), expected, 1e-6);
}

TEST_F(Energy, IsAbsentWithoutMeters) {
  Open({}, {kCpu});
  Prefill(1);
  EXPECT_FALSE(Taken(1).prefill_joules);
}

TEST_F(Energy, IsDividedAmongLanesAndRows) {
  const auto meter = std::make_shared<FakeMeter>(kCpu);
  Open({meter}, {kCpu, kOtherCore});
  ledger_.Begin(0, StepOf({1, 2}));  // 1 and 2 decode on one core
  Pass(*meter, 4);
  ledger_.Begin(1, ChunkOf(3));  // the prompt of 3 is computed on the other
  Pass(*meter, 8);
  ledger_.End(0, false);
  ledger_.Begin(0, CollectStep{});
  Pass(*meter, 2);
  ledger_.End(0, false);
  Pass(*meter, 5);
  ledger_.End(1, false);
  Pass(*meter, 50);  // no lane works
  ledger_.Begin(0, ImportSegment{3, 0, {}});
  Pass(*meter, 1);
  ledger_.End(0, false);
  const RequestStats one = Taken(1), two = Taken(2), three = Taken(3);
  ExpectJoules(one.decode_joules, 2 + 2 + 0.5);
  ExpectJoules(two.decode_joules, 2 + 2 + 0.5);
  ExpectJoules(three.prefill_joules, 4 + 1 + 5);
  ExpectJoules(three.handoff_joules, 1);
  ExpectJoules(three.decode_joules, 0);  // it did not happen
}

// A GPU computes the step after Submit has returned.
TEST_F(Energy, FollowsADeviceThatRunsAhead) {
  const auto meter = std::make_shared<FakeMeter>(kGpu);
  Open({meter}, {kGpu});
  ledger_.Begin(0, StepOf({1}));
  ledger_.End(0, false);
  Pass(*meter, 3);
  ledger_.Begin(0, StepOf({2}));
  ledger_.End(0, true);  // fails: it is never collected
  ledger_.Begin(0, CollectStep{});
  Pass(*meter, 4);
  ledger_.End(0, false);
  ExpectJoules(Taken(1).decode_joules, 7);
  ExpectJoules(Taken(2).decode_joules, 0);
}

TEST_F(Energy, IsAbsentOnADeviceWithoutAMeter) {
  const auto meter = std::make_shared<FakeMeter>(kGpu);
  Open({meter}, {kGpu, kCpu});
  ledger_.Begin(1, ChunkOf(1));
  ledger_.Begin(0, StepOf({1}));
  Pass(*meter, 3);
  ledger_.End(0, false);
  ledger_.End(1, false);
  const RequestStats stats = Taken(1);
  EXPECT_FALSE(stats.prefill_joules);
  ExpectJoules(stats.decode_joules, 3);
}

// Apple's counters of engine and processor stand still on some systems.
TEST_F(Energy, IsAbsentWhereTheCounterStandsStill) {
  const auto meter = std::make_shared<FakeMeter>(kCpu);
  Open({meter}, {kCpu});
  for (const Time until : {Time::max(), now_}) {  // with stamps of now, or with one that is old
    meter->until = until;
    Prefill(1);
    ledger_.Begin(0, StepOf({1}));
    Pass(0.001);  // too short for any counter
    ledger_.End(0, false);
    const RequestStats stats = Taken(1);
    EXPECT_FALSE(stats.prefill_joules);
    EXPECT_FALSE(stats.decode_joules);
    ExpectJoules(stats.handoff_joules, 0);
  }
}

TEST_F(Energy, IsToldWhenNineTenthsWereCounted) {
  for (const double uncounted : {0.5, 2.0}) {
    const auto meter = std::make_shared<FakeMeter>(kCpu);
    Open({meter}, {kCpu});
    ledger_.Begin(0, ChunkOf(1));
    Pass(10);
    meter->joules += 20;
    ledger_.End(0, false);
    meter->readable = false;  // it cannot be read for a while
    ledger_.Begin(0, ChunkOf(1));
    Pass(uncounted);
    ledger_.End(0, false);
    const RequestStats stats = Taken(1);
    EXPECT_EQ(stats.prefill_joules.has_value(), uncounted < 1);
    if (stats.prefill_joules) ExpectJoules(stats.prefill_joules, 20 + 1);
  }
}

// A counter that is written every two seconds: its energy goes to those who worked since the last write.
TEST_F(Energy, WaitsForALateCounter) {
  const auto engine = std::make_shared<FakeMeter>(kCpu), gpu = std::make_shared<FakeMeter>(kGpu);
  Open({engine, gpu}, {kCpu, kGpu});
  engine->until = now_;
  Pass(0.5);
  Prefill(1);
  ledger_.Begin(1, StepOf({1}));
  Pass(0.5);
  engine->joules += 3;  // was written now
  engine->until = now_;
  Pass(0.1);
  gpu->joules += 6;
  ledger_.End(1, false);  // an event of another device's
  Pass(60);               // by now it may say anything
  engine->joules += 500;
  engine->until = now_;
  const RequestStats stats = Taken(1);
  ExpectJoules(stats.prefill_joules, 3);
  Prefill(2);  // ends before it is written
  EXPECT_FALSE(Taken(2).prefill_joules);
}

// It counts whole millijoules, say.
TEST_F(Energy, WaitsForACoarseCounter) {
  const auto meter = std::make_shared<FakeMeter>(kCpu);
  Open({meter}, {kCpu});
  ledger_.Begin(0, ChunkOf(1));
  Pass(0.001);
  ledger_.End(0, false);
  ledger_.Begin(0, StepOf({1}));
  Pass(0.003);
  meter->joules += 0.004;
  ledger_.End(0, false);
  const RequestStats stats = Taken(1);
  ExpectJoules(stats.prefill_joules, 0.001);
  ExpectJoules(stats.decode_joules, 0.003);
}

TEST_F(Energy, DividesAStepOfTheCounterByTime) {
  const auto meter = std::make_shared<FakeMeter>(kCpu);
  Open({meter}, {kCpu});
  meter->until = now_;
  ledger_.Begin(0, ChunkOf(1));
  Pass(0.5);
  ledger_.End(0, false);
  ledger_.Begin(0, ChunkOf(2));
  Pass(1);
  meter->joules += 6;
  meter->until = now_;
  Pass(0.1);  // of the next step
  ledger_.End(0, false);
  ExpectJoules(Taken(1).prefill_joules, 2);
  ExpectJoules(Taken(2).prefill_joules, 4 * 1.1);  // the last tenth like the rest
}

// A headless M5 Ultra writes its counters twice an hour.
TEST_F(Energy, DoesNotBelieveALongStepWithLittleWork) {
  const auto meter = std::make_shared<FakeMeter>(kCpu);
  meter->until = now_;
  Pass(1798);
  Open({meter}, {kCpu});
  Prefill(1);
  Pass(1);
  meter->joules += 6000;
  meter->until = now_;
  EXPECT_FALSE(Taken(1).prefill_joules);

  ledger_.Begin(0, ChunkOf(2));  // a long one is as good as a short step
  Pass(1800);
  meter->joules += 9000;
  meter->until = now_;
  ledger_.End(0, false);
  ExpectJoules(Taken(2).prefill_joules, 9000);
}

TEST_F(Energy, IsAskedSeldomWhenAskingTakesTime) {
  const auto meter = std::make_shared<FakeMeter>(kGpu);
  Open({meter}, {kGpu});
  meter->on_read = [&] { Pass(0.004); };
  const Time begin = now_;
  for (int i = 0; i < 200; ++i) {
    ledger_.Begin(0, StepOf({1}));
    Pass(0.01);
    meter->joules += 0.2;
    ledger_.End(0, false);
    ledger_.Begin(0, CollectStep{});
    ledger_.End(0, false);
  }
  const double seconds = std::chrono::duration<double>(now_ - begin).count();
  EXPECT_GT(meter->asked, 5);
  EXPECT_LE((meter->asked - 1) * 0.004, 0.02 * seconds);
  const double joules = Taken(1).decode_joules.value_or(0);
  EXPECT_NEAR(joules, 200 * 0.2, 2);  // but the last step's last question took time
  const int asked = meter->asked;
  Pass(0.05);
  Prefill(2);
  EXPECT_EQ(meter->asked, asked + 2);  // more often than in text
  ledger_.Begin(0, ChunkOf(2));
  Pass(0.03);
  ledger_.End(0, false);
  EXPECT_EQ(meter->asked, asked + 2);  // but no chunk waits for it
}

TEST(Engine, GivesRequestsTheirJoules) {
  const CpuModelForTests model;
  class Clock final : public PowerMeter {  // a joule for each read
   public:
    PhysicalDevice Device() const override { return {PhysicalDevice::Kind::kCpu, 0, {}}; }
    std::string Source() const override { return "clock"; }
    std::optional<EnergyReading> Read() override { return EnergyReading{++joules_, Time::max()}; }

   private:
    double joules_ = 0;
  };
  for (const bool metered : {false, true}) {
    EngineOptions options;
    if (metered) options.meters = {std::make_shared<Clock>()};
    Engine engine(model.spec(), model.Devices(2), options);
    std::promise<RequestResult> end;
    engine.Submit({.prompt = std::vector<TokenId>(50, 3), .max_tokens = 5, .prefill_chunk = 20},
                  {{}, [&](RequestResult result) { end.set_value(std::move(result)); }});
    const RequestStats stats = end.get_future().get().stats;
    EXPECT_EQ(stats.prefill_joules.has_value(), metered);
    if (!metered) continue;
    EXPECT_GT(*stats.prefill_joules, 0);
    EXPECT_GT(*stats.handoff_joules, 0);
    EXPECT_GT(*stats.decode_joules, 0);
  }
}

class Powercap : public ::testing::Test {
 protected:
  Powercap() : path_(std::filesystem::temp_directory_path() / ("pd_powercap." + std::to_string(getpid()))) {}
  ~Powercap() override { std::filesystem::remove_all(path_); }

  void Zone(const std::string& zone, const std::string& name, double microjoules) {
    std::filesystem::create_directories(path_ / zone);
    std::ofstream(path_ / zone / "name") << name << "\n";
    std::ofstream(path_ / zone / "energy_uj") << std::fixed << microjoules << "\n";
    std::ofstream(path_ / zone / "max_energy_range_uj") << 1000000000 << "\n";
  }
  std::shared_ptr<PowerMeter> Processor() const {
    const PowerMeters meters = OpenRapl(path_.string());
    return meters.empty() ? nullptr : meters.at(0);
  }
  std::filesystem::path path_;
};

TEST_F(Powercap, IsReadWhereThereIsOne) {
  EXPECT_EQ(Processor(), nullptr);
  Zone("intel-rapl:0:0", "core", 5e6);  // a part of a package
  EXPECT_EQ(Processor(), nullptr);
  Zone("intel-rapl:0", "package-0", 5e6);
  Zone("intel-rapl:1", "package-1", 7e6);
  const auto meter = Processor();
  ASSERT_NE(meter, nullptr);
  EXPECT_EQ(meter->Source(), "RAPL, 2 packages");
  EXPECT_DOUBLE_EQ(meter->Read()->joules, 12);
  Zone("intel-rapl:0", "package-0", 1e6);  // wrapped after 1000 J
  EXPECT_DOUBLE_EQ(meter->Read()->joules, 1008);
  std::filesystem::remove_all(path_ / "intel-rapl:1");
  EXPECT_FALSE(meter->Read());
}

}  // namespace
}  // namespace pd::test
