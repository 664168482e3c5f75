#include "serving/kv_room.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/serving/lane_world.h"

namespace pd::test {
namespace {

TEST(KvRoom, ReservationsGiveBackWhatTheyHold) {
  KvRoom room({.limit = 100, .slot_bytes = BytesPerToken(2)});
  {
    KvRoom::Reserved first = room.Reserve(10, 5);
    EXPECT_EQ(room.bytes(), 25u);
    EXPECT_TRUE(room.FitsNow(30, 15));
    EXPECT_FALSE(room.FitsNow(30, 16));
    first.session.reset();
    EXPECT_EQ(room.bytes(), 20u);
    first.session.reset();
    EXPECT_EQ(room.bytes(), 20u) << "given back twice";
    const KvRoom::Reservation moved = std::move(first.slot);
    EXPECT_EQ(room.bytes(), 20u);
    first.slot = room.Reserve(1, 0).slot;
    EXPECT_EQ(room.bytes(), 22u);
  }
  EXPECT_EQ(room.bytes(), 0u);
  EXPECT_TRUE(room.FitsAlone(50, 0));
  EXPECT_FALSE(room.FitsAlone(50, 1));
}

TEST(KvRoom, EvenSlotsTakeTheRoomOfTheLongest) {
  KvRoom room({.limit = 100, .slot_bytes = BytesPerToken(1), .even_slots = true});
  KvRoom::Reserved first = room.Reserve(10, 0);
  {
    const KvRoom::Reserved second = room.Reserve(20, 0);
    EXPECT_EQ(room.bytes(), 40u);
    EXPECT_FALSE(room.FitsNow(40, 0));
  }
  EXPECT_EQ(room.bytes(), 40u) << "slots do not shrink while one is open";
  EXPECT_TRUE(room.FitsNow(50, 0));
  first.slot.reset();
  EXPECT_EQ(room.bytes(), 0u);
}

}  // namespace
}  // namespace pd::test
