// Jobs that the scheduler gives to lanes, events it is told of, and its notices. Plain data, so that tests
// can write them down.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kv/segment.h"
#include "serving/request.h"

namespace pd {

using LaneId = int;

// ---- jobs: one at a time on a lane ----

// Opens a slot on the decode device for the request. Result: the slot.
struct OpenSlot {
  RequestId request = 0;
  int capacity = 0;
  Variant variant;
};

// Computes prompt tokens [first, first + count) on prefill device `unit`. Result: their segment.
struct PrefillChunk {
  struct Begin {  // opens the session, with the first chunk of a request
    int capacity = 0;
    Variant variant;
    std::vector<KvSegment> prefix;  // keys and values of the tokens before `first`
  };
  RequestId request = 0;
  size_t unit = 0;
  std::shared_ptr<const Request> of;
  int first = 0, count = 0;
  bool compact = false;  // copy the segment to memory of its own, for the prefix cache
  std::optional<Begin> begin;
};

// Closes the request's prefill session, if it was opened.
struct EndPrefill {
  RequestId request = 0;
  size_t unit = 0;
};

struct ImportSegment {
  RequestId request = 0;
  SlotId slot = 0;
  KvSegment segment;
};

// Rows for the decode device: either one row each of many requests, all sampled; or rows of one request's
// prompt, none sampled.
struct SubmitStep {
  struct Sampling {
    SampleSpec spec;                    // the lane fills in its spans from the next two
    std::vector<TokenId> context;       // empty when there are no penalties
    std::shared_ptr<const Request> of;  // owns the bias
  };
  std::vector<RequestId> request;  // one per row, like the next three
  std::vector<TokenId> ids;        // kLastSampled: the host does not know the token yet
  std::vector<int32_t> pos;
  std::vector<SlotId> slot;
  std::vector<Sampling> sample;  // one per row, or none at all
};

// Collects the oldest uncollected step. Result: one SampledRow for each Sampling.
struct CollectStep {};

// Copies the slot's keys and values of tokens [first, first + count) to memory of their own. Result: the
// segment.
struct ExportSegment {
  RequestId request = 0;
  SlotId slot = 0;
  int first = 0, count = 0;
};

// Keeps the first `count` tokens of the slot.
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
// The request's reader wants no more tokens, or failed.
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

// The job that the lane ran has ended, `ms` after its start.
struct Done {
  LaneId lane = 0;
  JobResult result;
  double ms = 0;
};

// The time of the events that follow, in milliseconds since a fixed start; never goes back.
struct Tick {
  double now = 0;
};

using Event = std::variant<Arrived, Cancelled, Stopped, Done, Tick>;

// ---- notices: what the owner of the requests is told ----

// A token of the text; end tokens are not reported.
struct TokenOut {
  RequestId request = 0;
  Sampled sampled;
};
// The last notice about a request.
struct Ended {
  RequestId request = 0;
  RequestResult result;
};

// Something went wrong that fails no request. One line.
struct Warned {
  std::string message;
};

using Notice = std::variant<TokenOut, Ended, Warned>;

}  // namespace pd
