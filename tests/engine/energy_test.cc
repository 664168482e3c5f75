#include "engine/energy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "tests/engine/cpu_engine.h"

namespace pd::test {
namespace {

class FakeMeter final : public PowerMeter {
 public:
  explicit FakeMeter(PhysicalDevice device) : device_(std::move(device)) {}
  PhysicalDevice Device() const override { return device_; }
  std::string Source() const override { return "fake"; }
  std::optional<double> Joules() override { return joules; }
  std::optional<double> joules = 100;

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

RequestStats Taken(EnergyLedger& ledger, RequestId request) {
  RequestStats stats;
  ledger.Take(request, stats);
  return stats;
}

TEST(EnergyLedger, IsSilentWithoutMeters) {
  EnergyLedger ledger({}, {kCpu});
  ledger.Begin(0, ChunkOf(1));
  ledger.End(0, false);
  EXPECT_FALSE(Taken(ledger, 1).prefill_joules);
}

TEST(EnergyLedger, DividesAmongLanesAndRows) {
  const auto meter = std::make_shared<FakeMeter>(kCpu);
  EnergyLedger ledger({meter}, {kCpu, kOtherCore});
  ledger.Begin(0, StepOf({1, 2}));  // 1 and 2 decode on one core
  *meter->joules += 4;
  ledger.Begin(1, ChunkOf(3));  // 3 is read on the other
  *meter->joules += 8;
  ledger.End(0, false);
  ledger.Begin(0, CollectStep{});
  *meter->joules += 2;
  ledger.End(0, false);
  *meter->joules += 5;
  ledger.End(1, false);
  *meter->joules += 50;  // nobody works
  ledger.Begin(0, ImportSegment{3, 0, {}});
  *meter->joules += 1;
  ledger.End(0, false);
  const RequestStats one = Taken(ledger, 1), two = Taken(ledger, 2), three = Taken(ledger, 3);
  EXPECT_DOUBLE_EQ(*one.decode_joules, 2 + 2 + 0.5);
  EXPECT_DOUBLE_EQ(*two.decode_joules, 2 + 2 + 0.5);
  EXPECT_DOUBLE_EQ(*three.prefill_joules, 4 + 1 + 5);
  EXPECT_DOUBLE_EQ(*three.handoff_joules, 1);
  EXPECT_DOUBLE_EQ(*three.decode_joules, 0);
}

// A GPU computes the step after Submit has returned.
TEST(EnergyLedger, FollowsADeviceThatRunsAhead) {
  const auto meter = std::make_shared<FakeMeter>(kGpu);
  EnergyLedger ledger({meter}, {kGpu});
  ledger.Begin(0, StepOf({1}));
  ledger.End(0, false);
  *meter->joules += 3;
  ledger.Begin(0, StepOf({2}));
  ledger.End(0, true);  // fails: it is never collected
  ledger.Begin(0, CollectStep{});
  *meter->joules += 4;
  ledger.End(0, false);
  EXPECT_DOUBLE_EQ(*Taken(ledger, 1).decode_joules, 7);
  EXPECT_DOUBLE_EQ(*Taken(ledger, 2).decode_joules, 0);
}

TEST(EnergyLedger, AbsentIsNotZero) {
  const auto meter = std::make_shared<FakeMeter>(kGpu);
  EnergyLedger ledger({meter}, {kGpu, kCpu});
  ledger.Begin(1, ChunkOf(1));  // on a processor without a meter
  ledger.Begin(0, StepOf({1}));
  *meter->joules += 3;
  ledger.End(0, false);
  ledger.End(1, false);
  meter->joules.reset();  // it cannot be read any more
  ledger.Begin(0, CollectStep{});
  ledger.End(0, false);
  const RequestStats stats = Taken(ledger, 1);
  EXPECT_FALSE(stats.prefill_joules);
  EXPECT_DOUBLE_EQ(*stats.decode_joules, 3);
}

TEST(Engine, GivesRequestsTheirJoules) {
  const CpuModelForTests model;
  class Clock final : public PowerMeter {  // a joule for each time that it is asked
   public:
    PhysicalDevice Device() const override { return {PhysicalDevice::Kind::kCpu, 0, {}}; }
    std::string Source() const override { return "clock"; }
    std::optional<double> Joules() override { return ++joules_; }

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
    for (auto& meter : OpenPowerMeters(path_.string()))
      if (meter->Device().kind == PhysicalDevice::Kind::kCpu) return meter;
    return nullptr;
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
  EXPECT_DOUBLE_EQ(*meter->Joules(), 12);
  Zone("intel-rapl:0", "package-0", 1e6);  // began again after 1000 J
  EXPECT_DOUBLE_EQ(*meter->Joules(), 1008);
  std::filesystem::remove_all(path_ / "intel-rapl:1");
  EXPECT_FALSE(meter->Joules());
}

}  // namespace
}  // namespace pd::test
