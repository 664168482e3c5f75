#include "serving/lane_thread.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "device/scoped_slot.h"
#include "tests/expect_error.h"
#include "tests/serving/cpu_engine.h"

namespace pd::test {
namespace {

TEST(LaneThread, PassesOnWhatIsThrown) {
  bool left = false;
  {
    LaneThread lane({}, [&] { left = true; });
    std::thread::id first, second;
    lane.Do([&] { first = std::this_thread::get_id(); });
    lane.Do([&] { second = std::this_thread::get_id(); });
    EXPECT_EQ(first, second);
    EXPECT_NE(first, std::this_thread::get_id());
    EXPECT_THROW(lane.Do([] { throw Fail(ErrorKind::kDevice, "broken"); }), Error);
    lane.Do([] {});
  }
  EXPECT_TRUE(left);
}

TEST(LaneOf, DevicesThatOverlapShareALane) {
  using Kind = PhysicalDevice::Kind;
  std::vector<PhysicalDevice> lanes;
  EXPECT_EQ(LaneOf({Kind::kCpu, 0, {0, 1}}, lanes), 0);
  EXPECT_EQ(LaneOf({Kind::kCpu, 0, {2}}, lanes), 1);
  EXPECT_EQ(LaneOf({Kind::kGpu, 0}, lanes), 2);
  EXPECT_EQ(LaneOf({Kind::kCpu, 0, {1}}, lanes), 0);
  EXPECT_EQ(LaneOf({Kind::kGpu, 1}, lanes), 3);
  EXPECT_EQ(lanes.size(), 4u);
}

TEST(ScopedSlot, ReportsWhenAskedAndNeverThrowsFromItsDestructor) {
  const CpuModelForTests model;
  FaultyDecode device(model.Open(0), {.close = true});
  SlotId id = 0;
  {
    id = ScopedSlot(device, 8).id();
  }
  EXPECT_THROW(device.Length(id), Error) << "it is still open";
  ScopedSlot slot(device, 8);
  ExpectError(ErrorKind::kDevice, {"a fault of closing"}, [&] { slot.Close(); });
  slot.Close();  // it counts as closed
}

}  // namespace
}  // namespace pd::test
