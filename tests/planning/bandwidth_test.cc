#include "planning/bandwidth.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

class BandwidthStoreTest : public ::testing::Test {
 protected:
  const test::TempFolder folder_;
  const std::filesystem::path file_ = folder_ / "deeper" / "machine.json";
};

TEST(BandwidthKey, RoundsToPowersOfTwo) {
  EXPECT_EQ(BandwidthKeyFor(1, 2).bytes, size_t(1) << 20);
  EXPECT_EQ(BandwidthKeyFor(90'000'000, 2).bytes, size_t(128) << 20);
  EXPECT_EQ(BandwidthKeyFor(size_t(128) << 20, 2).bytes, size_t(128) << 20);
  EXPECT_EQ(BandwidthKeyFor(size_t(1) << 40, 2).bytes, size_t(512) << 20);
  EXPECT_EQ(BandwidthKeyFor(1, 3).threads, 3);
  EXPECT_FALSE(BandwidthKeyFor(1, 3).cpu.empty());
}

TEST(MeasureBandwidth, IsOfThisWorld) {
  for (int threads : {1, 2, 3}) {
    const double rate = MeasureBandwidth((size_t(4) << 20) + 24, threads);
    EXPECT_GT(rate, 1e8);   // 0.1 GB/s: a tape
    EXPECT_LT(rate, 1e13);  // 10 TB/s: ten times the fastest cache we know
  }
}

TEST_F(BandwidthStoreTest, MeasuresOnceAndKeeps) {
  const BandwidthStore store(file_);
  const BandwidthKey key{"a processor", 1, size_t(1) << 20};
  const double rate = store.Get(key);
  EXPECT_GT(rate, 0);
  EXPECT_EQ(BandwidthStore(file_).Get(key), rate);  // two measurements never agree to the last bit
  const BandwidthKey other{"a processor", 1, size_t(2) << 20};
  store.Get(other);
  EXPECT_EQ(store.Get(key), rate);
  EXPECT_EQ(ParseJson(ReadTextFile(file_), "file")["read_bandwidth"].size(), 2u);
}

TEST_F(BandwidthStoreTest, ImprovesUpwardsOnly) {
  const BandwidthKey key{"a processor", 1, size_t(1) << 20};
  const auto write = [&](double rate) {
    std::filesystem::create_directories(file_.parent_path());
    const Json entry = {{"cpu", key.cpu}, {"threads", 1}, {"bytes", key.bytes}, {"bytes_per_s", rate}};
    WriteFileAtomically(file_, Json{{"version", 1}, {"read_bandwidth", {entry}}}.dump());
  };
  const BandwidthStore store(file_);
  write(1e15);
  EXPECT_EQ(store.Improve(key), 1e15);
  EXPECT_EQ(store.Get(key), 1e15);
  write(5);
  EXPECT_EQ(store.Get(key), 5);
  EXPECT_GT(store.Improve(key), 1e6);
  EXPECT_GT(store.Get(key), 1e6);
}

TEST_F(BandwidthStoreTest, SurvivesForeignFilesAndUnwritablePlaces) {
  const BandwidthKey key{"a processor", 1, size_t(1) << 20};
  std::filesystem::create_directories(file_.parent_path());
  const char* negative =
      "{\"version\": 1, \"read_bandwidth\": [{\"cpu\": \"a processor\", \"threads\": 1, \"bytes\": 1048576,"
      " \"bytes_per_s\": -1}]}";
  for (const char* text :
       {"", "not json", "[]", "{\"version\": 2}", "{\"version\": 1, \"read_bandwidth\": [3, {\"cpu\": []}]}",
        "{\"version\": \"1\", \"read_bandwidth\": []}", negative}) {
    WriteFileAtomically(file_, std::string_view(text));
    const double rate = BandwidthStore(file_).Get(key);
    EXPECT_GT(rate, 0) << text;
    EXPECT_EQ(BandwidthStore(file_).Get(key), rate) << text;
  }
  EXPECT_GT(BandwidthStore("/proc/none/machine.json").Get(key), 0);
}

}  // namespace
}  // namespace pd
