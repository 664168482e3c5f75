#include <gtest/gtest.h>

#include "power/meter_kinds.h"
#include "tests/power/standin/ioreport.h"

namespace pd::test {
namespace {

using Kind = PhysicalDevice::Kind;
using Seconds = std::chrono::duration<double>;

constexpr uint64_t kTicksPerSecond = 24'000'000;

// The library is in this process already, and its name finds it.
PowerMeters Open() { return OpenIoReport(PD_IOREPORT_STANDIN); }

class IoReport : public ::testing::Test {
 protected:
  IoReport() {
    StandIn() = {.channels = {{"DIE_0_CPU Energy", "mJ", 1000, kTicksPerSecond},
                              {"DIE_0_PACC0_CPU", "mJ", 900, kTicksPerSecond},
                              {"ANE0_0", "mJ", 7, kTicksPerSecond},
                              {"DIE_1_CPU Energy", "mJ", 500, kTicksPerSecond},
                              {"GPU Energy", "nJ", 5'000'000'000}},
                 .ticks = 3 * kTicksPerSecond,
                 .objects = StandIn().objects};
  }
  static StandInChannel& Channel(const std::string& name) {
    for (StandInChannel& channel : StandIn().channels)
      if (channel.name == name) return channel;
    throw std::out_of_range(name);
  }
  static double Age(const EnergyReading& reading) {
    return Seconds(std::chrono::steady_clock::now() - reading.until).count();
  }
};

TEST_F(IoReport, GivesAMeterForEachKindOfDevice) {
  const PowerMeters meters = Open();
  ASSERT_EQ(meters.size(), 3u);
  EXPECT_EQ(meters[0]->Device().kind, Kind::kCpu);
  EXPECT_EQ(meters[0]->Source(), "IOReport, DIE_0_CPU Energy + DIE_1_CPU Energy");
  EXPECT_EQ(meters[1]->Device().kind, Kind::kGpu);
  EXPECT_EQ(meters[1]->Source(), "IOReport, GPU Energy");
  EXPECT_EQ(meters[2]->Device().kind, Kind::kNeuralEngine);
  EXPECT_EQ(meters[2]->Source(), "IOReport, ANE0_0");
}

TEST_F(IoReport, AddsUpWhatItsChannelsTook) {
  const PowerMeters meters = Open();
  ASSERT_EQ(meters.size(), 3u);
  const double cpu = meters[0]->Read()->joules, gpu = meters[1]->Read()->joules;
  Channel("DIE_0_CPU Energy").count += 250;
  Channel("DIE_1_CPU Energy").count += 50;
  Channel("DIE_0_PACC0_CPU").count += 200;
  Channel("GPU Energy").count += 2'000'000'000;
  EXPECT_NEAR(meters[0]->Read()->joules - cpu, 0.3, 1e-9);
  EXPECT_NEAR(meters[1]->Read()->joules - gpu, 2, 1e-9);
}

TEST_F(IoReport, SaysWhenTheDriverWrote) {
  const PowerMeters meters = Open();
  ASSERT_EQ(meters.size(), 3u);
  EXPECT_NEAR(Age(*meters[0]->Read()), 2, 0.5);
  EXPECT_NEAR(Age(*meters[1]->Read()), 0, 0.5);  // the stamp is unknown
  Channel("ANE0_0").stamp = 2 * kTicksPerSecond;
  EXPECT_NEAR(Age(*meters[2]->Read()), 1, 0.5);
}

TEST_F(IoReport, ReleasesWhatItMade) {
  const int before = StandIn().objects;
  {
    const PowerMeters meters = Open();
    for (const auto& meter : meters) meter->Read();
    EXPECT_GT(StandIn().objects, before);
    StandIn().samples = false;
    for (const auto& meter : meters) EXPECT_FALSE(meter->Read());
  }
  EXPECT_EQ(StandIn().objects, before);
}

TEST_F(IoReport, HasNoMeterOfAChannelThatIsNotThere) {
  Channel("ANE0_0").name = "ISP0_0";
  EXPECT_EQ(Open().size(), 2u);
  Channel("GPU Energy").unit = "events";
  EXPECT_EQ(Open().size(), 1u);
}

TEST_F(IoReport, CannotBeReadWithoutOneOfItsChannels) {
  const PowerMeters meters = Open();
  ASSERT_EQ(meters.size(), 3u);
  Channel("DIE_1_CPU Energy").in_samples = false;
  EXPECT_FALSE(meters[0]->Read());
  Channel("ANE0_0").count = std::numeric_limits<int64_t>::min();  // of a channel in another format
  EXPECT_FALSE(meters[2]->Read());
}

TEST_F(IoReport, IsAbsentWhereItIsRefusedOrAnotherLibrary) {
  StandIn().subscribes = false;
  EXPECT_TRUE(Open().empty());
  StandIn().subscribes = true;
  StandIn().channels.clear();
  EXPECT_TRUE(Open().empty());
  EXPECT_TRUE(OpenIoReport("libc.so.6").empty());
  EXPECT_TRUE(OpenIoReport("no such library").empty());
}

}  // namespace
}  // namespace pd::test
