// What the scheduler asks of lanes, and what it is told: plain data, so that a test can write both down.
#pragma once
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "kv/segment.h"

namespace pd {

using LaneId = int;

// ---- jobs: one at a time on a lane ----

// A place for the request in the decode device. Its result is the slot.
struct OpenSlot {
  RequestId request = 0;
  int capacity = 0;
  Variant variant;
};

// Prompt tokens [first, first + count) on prefill device `unit`. Its result is their segment.
struct PrefillChunk {
  struct Begin {  // with the first chunk of a request: opens its session
    int capacity = 0;
    Variant variant;
    std::vector<KvSegment> prefix;  // what tokens before `first` gave
  };
  RequestId request = 0;
  size_t unit = 0;
  std::shared_ptr<const Request> of;
  int first = 0, count = 0;
  bool compact = false;  // the segment in memory of its own, for the prefix cache
  std::optional<Begin> begin;
};

// Ends the request's session, if it has one.
struct EndPrefill {
  RequestId request = 0;
  size_t unit = 0;
};

struct ImportSegment {
  RequestId request = 0;
  SlotId slot = 0;
  KvSegment segment;
};

// Rows for the decode device: of many requests, one each, to sample from; or of one request's prompt, without
// any sample.
struct SubmitStep {
  struct Sampling {
    SampleSpec spec;                    // its spans are filled in from what follows
    std::vector<TokenId> context;       // empty when there are no penalties
    std::shared_ptr<const Request> of;  // keeps the bias
  };
  std::vector<RequestId> request;  // one for each row, as the next three
  std::vector<TokenId> ids;        // kLastSampled: not known to the host yet
  std::vector<int32_t> pos;
  std::vector<SlotId> slot;
  std::vector<Sampling> sample;  // one for each row, or none
};

// The oldest uncollected step. Its result is one SampledRow for each Sampling.
struct CollectStep {};

// What the slot holds of tokens [first, first + count), in memory of its own.
struct ExportSegment {
  RequestId request = 0;
  SlotId slot = 0;
  int first = 0, count = 0;
};

struct TruncateSlot {
  RequestId request = 0;
  SlotId slot = 0;
  int count = 0;
};

struct CloseSlot {
  RequestId request = 0;
  SlotId slot = 0;
};

using Job = std::variant<OpenSlot, PrefillChunk, EndPrefill, ImportSegment, SubmitStep, CollectStep,
                         ExportSegment, TruncateSlot, CloseSlot>;

// ---- events ----

struct Arrived {
  RequestId request = 0;
  std::shared_ptr<const Request> of;
  RequestPlan plan;
};
struct Cancelled {
  RequestId request = 0;
};
// Its reader has enough, or failed.
struct Stopped {
  RequestId request = 0;
  std::optional<Failure> failure;
};

// A segment and the bytes of its keys and values.
struct Chunk {
  KvSegment segment;
  size_t bytes = 0;
};
using JobResult = std::variant<std::monostate, SlotId, Chunk, std::vector<SampledRow>, Failure>;

// The lane's job ended after `ms`.
struct Done {
  LaneId lane = 0;
  JobResult result;
  double ms = 0;
};

// The time in milliseconds since some beginning; never goes back. It holds for the events that follow.
struct Tick {
  double now = 0;
};

using Event = std::variant<Arrived, Cancelled, Stopped, Done, Tick>;

// ---- notices: what the scheduler has to say to the requests' owner ----

// A token of the text, but not an end token.
struct TokenOut {
  RequestId request = 0;
  Sampled sampled;
};
// The last about a request.
struct Ended {
  RequestId request = 0;
  RequestResult result;
};

using Notice = std::variant<TokenOut, Ended>;

}  // namespace pd
