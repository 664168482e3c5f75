// Room for the keys and values of live requests, under one limit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace pd {

// What a sequence of `tokens` tokens takes on a device (MemoryBytes); empty: nothing.
using SequenceBytes = std::function<size_t(int tokens)>;
inline size_t BytesOf(const SequenceBytes& bytes, int tokens) { return bytes ? bytes(tokens) : 0; }

// Counts what slots and prefill sessions take when they are full. Not thread-safe; outlives its reservations.
class KvRoom {
 public:
  struct Options {
    size_t limit = SIZE_MAX;  // bytes
    SequenceBytes slot_bytes = {};
    bool even_slots = false;  // DeviceInfo::even_slots of the decode device
  };

  // The room of one slot or one session. Given back by reset() or the destructor.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { reset(); }
    void reset();

   private:
    friend class KvRoom;
    enum class Kind : uint8_t { kSlot, kSession };
    Reservation(KvRoom& room, Kind kind, size_t bytes) : room_(&room), kind_(kind), bytes_(bytes) {}
    KvRoom* room_ = nullptr;
    Kind kind_ = Kind::kSlot;
    size_t bytes_ = 0;
  };

  explicit KvRoom(const Options& options) : options_(options) {}
  KvRoom(const KvRoom&) = delete;
  KvRoom& operator=(const KvRoom&) = delete;

  // Whether a slot of `capacity` tokens and a session fit: beside what is reserved, or in empty room.
  bool FitsNow(int capacity, size_t session_bytes) const;
  bool FitsAlone(int capacity, size_t session_bytes) const;

  struct Reserved {
    Reservation slot, session;
  };
  // Only after FitsNow.
  Reserved Reserve(int capacity, size_t session_bytes);

  size_t bytes() const { return slots_.bytes + session_bytes_; }  // reserved now

 private:
  // Even slots each take the room of the longest, and none shrinks while one is open.
  struct Slots {
    int open = 0;
    int most = 0, longest = 0;  // slots open at a time, and tokens of one, since none was open
    size_t bytes = 0;
  };
  size_t SlotBytes(int capacity) const { return BytesOf(options_.slot_bytes, capacity); }
  Slots With(int capacity) const;

  const Options options_;
  Slots slots_;
  size_t session_bytes_ = 0;
};

}  // namespace pd
