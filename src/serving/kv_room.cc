#include "serving/kv_room.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pd {

KvRoom::Reservation::Reservation(Reservation&& other) noexcept
    : room_(std::exchange(other.room_, nullptr)), kind_(other.kind_), bytes_(other.bytes_) {}

KvRoom::Reservation& KvRoom::Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  reset();
  room_ = std::exchange(other.room_, nullptr);
  kind_ = other.kind_;
  bytes_ = other.bytes_;
  return *this;
}

void KvRoom::Reservation::reset() {
  KvRoom* room = std::exchange(room_, nullptr);
  if (!room) return;
  if (kind_ == Kind::kSession) {
    room->session_bytes_ -= bytes_;
  } else if (--room->slots_.open == 0) {
    room->slots_ = {};
  } else if (!room->options_.even_slots) {
    room->slots_.bytes -= bytes_;
  }
}

KvRoom::Slots KvRoom::With(int capacity) const {
  Slots slots = slots_;
  slots.most = std::max(slots.most, ++slots.open);
  slots.longest = std::max(slots.longest, capacity);
  slots.bytes =
      options_.even_slots ? size_t(slots.most) * SlotBytes(slots.longest) : slots.bytes + SlotBytes(capacity);
  return slots;
}

bool KvRoom::FitsNow(int capacity, size_t session_bytes) const {
  return With(capacity).bytes + session_bytes_ + session_bytes <= options_.limit;
}

bool KvRoom::FitsAlone(int capacity, size_t session_bytes) const {
  return SlotBytes(capacity) + session_bytes <= options_.limit;
}

KvRoom::Reserved KvRoom::Reserve(int capacity, size_t session_bytes) {
  PD_CHECK(FitsNow(capacity, session_bytes));
  slots_ = With(capacity);
  session_bytes_ += session_bytes;
  return {Reservation(*this, Reservation::Kind::kSlot, SlotBytes(capacity)),
          Reservation(*this, Reservation::Kind::kSession, session_bytes)};
}

}  // namespace pd
