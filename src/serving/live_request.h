// A request from its arrival until everything it held is given back, as the scheduler sees it.
#pragma once
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/segment.h"
#include "serving/job.h"
#include "serving/kv_room.h"

namespace pd {

// A request that waits for room.
struct QueuedRequest {
  RequestId id = 0;
  std::shared_ptr<const Request> of;
  RequestPlan plan;
  double arrived = 0;
  std::optional<double> deadline() const {
    return of->timeout_ms > 0 ? std::optional(arrived + of->timeout_ms) : std::nullopt;
  }
};

// Requests in order of arrival; any of them can leave. Every function takes constant time.
class WaitingLine {
 public:
  bool empty() const { return line_.empty(); }
  size_t size() const { return line_.size(); }
  const QueuedRequest& front() const { return line_.front(); }
  void Push(QueuedRequest request) {
    const RequestId id = request.id;
    by_id_[id] = line_.insert(line_.end(), std::move(request));
  }
  // Removes the request; nullopt when it does not wait.
  std::optional<QueuedRequest> Take(RequestId id) {
    const auto at = by_id_.find(id);
    if (at == by_id_.end()) return std::nullopt;
    QueuedRequest request = std::move(*at->second);
    line_.erase(at->second);
    by_id_.erase(at);
    return request;
  }

 private:
  std::list<QueuedRequest> line_;
  std::unordered_map<RequestId, std::list<QueuedRequest>::iterator> by_id_;
};

// What lanes can do for a request now, if they are free.
struct Work {
  bool open = false, import = false, export_tokens = false, close = false;  // on the decode lane
  bool row = false;                                                         // of the next step
  std::optional<LaneId> end_session;                                        // where
  std::optional<LaneId> chunk;  // where the next tokens of the prompt can be computed
  int prompt_left = 0;          // tokens; 0 once the request has ended
  bool may_use_cache = false;   // no device was asked for more than the cache gave
  bool operator==(const Work&) const = default;
};

// A request that holds room.
struct LiveRequest : QueuedRequest {
  enum class Phase : uint8_t {
    kPrefilling,  // the prompt is on its way into the slot
    kDecoding,    // the slot holds the prompt: the request gives a row to steps
    kEnded,       // answered; it gives back what it holds as soon as no job uses it
  };
  Phase phase = Phase::kPrefilling;
  bool whole = false;  // with kEnded: the text was not cut short
  RequestStats stats;

  // ---- held; reset gives it back ----
  KvRoom::Reservation slot_room, session_room;
  std::optional<SlotId> slot;
  struct Session {
    size_t unit = 0;
    bool busy = false;  // its lane computes a chunk, or ends it
  };
  std::optional<Session> session;
  int running_jobs = 0;     // that name this request, steps not counted
  int steps_in_flight = 0;  // uncollected steps with a row of this request

  // ---- the prompt without its last token, which is the first decode row: `goal` tokens ----
  int goal = 0;
  int asked = 0;                  // tokens from the cache, or asked of a device
  int filled = 0;                 // tokens in the slot
  std::optional<size_t> unit;     // nullopt: the decode device computes what is left
  int chunk = 1;                  // tokens at a time
  int reach = 0;                  // where the unit's next chunk must end at the latest
  std::deque<Chunk> ready;        // to be imported, in order of position
  std::vector<KvSegment> prefix;  // what the cache gave, to begin a session with; also first in `ready`
  std::optional<int> kept = 0;    // tokens that the cache has; nullopt: it takes no more of this request

  // ---- the text ----
  int submitted = 0;       // rows
  uint64_t last_step = 0;  // that held a row
  double decode_began = 0;
  std::vector<TokenId> tokens;

  Work filed;  // as the scheduler has filed it

  bool ended() const { return phase == Phase::kEnded; }
  bool holds_nothing() const { return !slot && !session && running_jobs == 0 && steps_in_flight == 0; }
  int prompt_left() const { return goal - asked; }
  // Whether the decode device computes the next prompt tokens, in the slot itself.
  bool direct() const { return !unit || asked >= reach; }
  // Tokens whose keys and values are in the slot for good: no step about to be collected changes them.
  int settled() const { return filled + int(tokens.size()); }
};

// Live requests by the work they have, so that no event looks at all of them. Sets of ids are in order of id,
// which is as good as order of arrival.
struct Agenda {
  explicit Agenda(int lanes) : on_lane(size_t(lanes)) {}

  struct OnLane {
    std::set<RequestId> cleanup;                  // a session or a slot to close
    std::set<RequestId> chunk;                    // a chunk to compute
    std::set<std::pair<int, RequestId>> by_rest;  // the same, shortest rest of the prompt first
  };
  std::vector<OnLane> on_lane;
  std::set<RequestId> open, import, export_tokens;  // on the decode lane
  std::set<std::pair<uint64_t, RequestId>> rows;    // by last_step: longest waiting first
  std::set<RequestId> unread;                       // prompts that are not all asked for
  std::set<RequestId> may_use_cache;

  // Replaces what was filed of the request.
  void File(LiveRequest& live, const Work& work, LaneId decode_lane);
};

}  // namespace pd
