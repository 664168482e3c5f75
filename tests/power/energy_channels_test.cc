#include "power/energy_channels.h"

#include <gtest/gtest.h>

namespace pd::test {
namespace {

using Kind = PhysicalDevice::Kind;
using Names = std::vector<std::string>;

Names Chosen(Kind device, const Names& names) {
  Names chosen;
  for (const size_t i : ChannelsOf(device, names)) chosen.push_back(names[i]);
  return chosen;
}

struct Chip {
  const char* name;
  const char* source;  // where the listing is published
  Names listing;       // of "Energy Model"; of channels that differ in their last number only, some
  Names cpu, gpu, engine;
};

const Chip kChips[] = {
    {"M1 Max",
     "kennss/SiliconScope, its map of channels",
     {"EACC_CPU0",
      "PACC0_CPU0",
      "PACC1_CPU3",
      "EACC_CPM",
      "EACC_CPU",
      "PACC0_CPU",
      "PACC1_CPU",
      "CPU Energy",
      "ECPUDTL00",
      "PCPU1DTL3e",
      "GPU0",
      "GPU SRAM0",
      "ANE0",
      "ISP0",
      "AVE0",
      "DCS0",
      "DRAM0",
      "AMCC0",
      "PCIe Port 0 Energy",
      "apciec0 Energy",
      "GPU Energy"},
     {"CPU Energy"},
     {"GPU Energy"},
     {"ANE0"}},
    {"M1 Ultra",
     "lablup/all-smi, tests/fixtures/ioreport/m1_ultra_energy_model.tsv",
     {"DIE_0_EACC_CPU0", "DIE_0_PACC1_CPU", "DIE_0_CPU Energy", "DIE_1_EACC_CPU0", "DIE_1_PACC1_CPU",
      "DIE_1_CPU Energy", "ECPUDTL00", "PCPU1DTL3e", "GPU0_0", "GPU SRAM0_0", "ANE0_0", "ISP0_0", "DRAM0_0",
      "ANE0_1", "ISP0_1", "DRAM0_1", "apciec2 Energy", "PCIe Port 0 Energy", "GPU Energy"},
     {"DIE_0_CPU Energy", "DIE_1_CPU Energy"},
     {"GPU Energy"},
     {"ANE0_0", "ANE0_1"}},
    {"M2 Ultra",
     "vladkens/macmon, the report of a CPU at 0 W",
     {"DIE_0_EACC_CPU0", "DIE_0_EACC_CPM", "DIE_0_EACC_CPU0_SRAM", "DIE_0_CPU Energy", "DIE_1_CPU Energy",
      "PCPUDTL010", "GPU0_0", "GPU CS0_0", "GPU SRAM0_0", "GPU CS SRAM0_0", "ANE0_0", "DRAM0_0", "ANE0_1",
      "DRAM0_1", "apciec2 Energy", "GPU Energy"},
     {"DIE_0_CPU Energy", "DIE_1_CPU Energy"},
     {"GPU Energy"},
     {"ANE0_0", "ANE0_1"}},
    {"M2 Pro without an engine's channel",
     "kennss/SiliconScope, the report of it",
     {"ECPU", "PCPU", "CPU Energy", "GPU Energy", "DRAM"},
     {"CPU Energy"},
     {"GPU Energy"},
     {}},
    {"M3 and M4",
     "names as vladkens/macmon and ml-energy/zeus-apple-silicon match them",
     {"ECPU0", "ECPU", "PCPU0", "PCPU", "ECPM", "PCPM", "CPU Energy", "GPU", "GPU SRAM", "ANE", "DRAM",
      "DISP", "GPU Energy"},
     {"CPU Energy"},
     {"GPU Energy"},
     {"ANE"}},
    {"M5 Max",
     "lablup/all-smi, tests/fixtures/ioreport/m5_max_energy_model.tsv",
     {"MCPU0_0", "PACC_0", "MCPM0", "MCPU0_0_SRAM", "MCPU0", "PCPU", "CPU Energy", "MCPU0DTL00", "PCPUDTL513",
      "GPU0", "AFR0", "ANE0", "ISP0", "DRAM0", "DISPEXT0", "PCIe Port 0 Energy", "GPU Energy"},
     {"CPU Energy"},
     {"GPU Energy"},
     {"ANE0"}},
};

TEST(EnergyChannels, AreFoundOnEachChip) {
  for (const Chip& chip : kChips) {
    SCOPED_TRACE(chip.name);
    EXPECT_EQ(Chosen(Kind::kCpu, chip.listing), chip.cpu) << chip.source;
    EXPECT_EQ(Chosen(Kind::kGpu, chip.listing), chip.gpu) << chip.source;
    EXPECT_EQ(Chosen(Kind::kNeuralEngine, chip.listing), chip.engine) << chip.source;
  }
}

// A whole beside its dies, which was never seen yet, must not be counted twice.
TEST(EnergyChannels, OfTheWholeStandForThoseOfItsParts) {
  EXPECT_EQ(Chosen(Kind::kCpu, {"DIE_0_CPU Energy", "CPU Energy"}), Names{"CPU Energy"});
  EXPECT_EQ(Chosen(Kind::kNeuralEngine, {"ANE0_0", "ANE0", "ANE0_1"}), Names{"ANE0"});
  EXPECT_EQ(Chosen(Kind::kGpu, {"GPU0_0", "GPU SRAM0_0", "GPU0_1"}), (Names{"GPU0_0", "GPU0_1"}));
  EXPECT_EQ(Chosen(Kind::kNeuralEngine, {"ANE0_SRAM", "ANEMONE", "DIE_0_ANE", "ANE_0"}), Names{});
  EXPECT_EQ(Chosen(Kind::kCpu, {"DIE__CPU Energy", "DIE_0_CPU Energy2"}), Names{});
}

TEST(EnergyChannels, HaveUnits) {
  EXPECT_EQ(JoulesOf("mJ"), 1e-3);
  EXPECT_EQ(JoulesOf("uJ"), 1e-6);
  EXPECT_EQ(JoulesOf("nJ "), 1e-9);
  EXPECT_FALSE(JoulesOf("mW"));
  EXPECT_FALSE(JoulesOf(""));
}

class ChannelSums : public ::testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  // Of two channels, in milli- and nanojoules, at `second` of both clocks; a tick is a millisecond.
  EnergyReading At(double second, ChannelCount milli, ChannelCount nano) {
    const auto now = Clock::time_point(std::chrono::milliseconds(int64_t(second * 1000)));
    return sum_.Add(std::vector{milli, nano}, {uint64_t(second * 1000), 1e-3, now});
  }
  static double Seconds(const EnergyReading& reading) {
    return std::chrono::duration<double>(reading.until.time_since_epoch()).count();
  }
  ChannelSum sum_{std::vector{1e-3, 1e-9}};
};

TEST_F(ChannelSums, CountFromTheFirstReadingOn) {
  EXPECT_EQ(At(10, {5'000'000}, {7}).joules, 0);
  EXPECT_NEAR(At(11, {5'000'500}, {1'000'000'007}).joules, 1.5, 1e-9);
}

TEST_F(ChannelSums, AreNeverLessThanBefore) {
  At(10, {5000}, {7});
  EXPECT_NEAR(At(11, {6000}, {7}).joules, 1, 1e-9);
  EXPECT_NEAR(At(12, {20}, {7}).joules, 1, 1e-9);  // the counter started again
  EXPECT_NEAR(At(13, {520}, {7}).joules, 1.5, 1e-9);
}

TEST_F(ChannelSums, CoverUpToTheOldestStamp) {
  EXPECT_NEAR(Seconds(At(10, {1, 9000}, {1, 9500})), 9, 1e-6);
  EXPECT_NEAR(Seconds(At(11, {1, 9000}, {1, 9500})), 9, 1e-6);
  EXPECT_NEAR(Seconds(At(12, {5, 11500}, {5, 11400})), 11.4, 1e-6);
}

TEST_F(ChannelSums, AreOfNowWhenTheyMoveWithoutAStamp) {
  EXPECT_NEAR(Seconds(At(10, {1}, {1})), 10, 1e-6);
  EXPECT_NEAR(Seconds(At(11, {1}, {1})), 10, 1e-6);  // late or dead: unknown
  EXPECT_NEAR(Seconds(At(12, {2}, {1})), 12, 1e-6);
  EXPECT_NEAR(Seconds(At(13, {3, 99000}, {1, 99000})), 13, 1e-6);  // of another clock
}

}  // namespace
}  // namespace pd::test
