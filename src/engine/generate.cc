#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "model/rope.h"

namespace pd {
namespace {

class Stopwatch {
 public:
  double Milliseconds() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

bool Cancelled(const GenerateRequest& request) { return request.cancel && request.cancel->load(); }

// How far a request may go.
struct Plan {
  int max_tokens = 0;  // what the request asks for, cut to what the context holds
  int capacity = 0;    // tokens in the slot at most; the last token sampled never enters it
  Variant variant;
};

Plan MakePlan(const ModelSpec& spec, const GenerateRequest& request) {
  const int context = request.context == 0 ? spec.max_context : request.context;
  const size_t prompt = request.prompt.size();
  if (context < 1 || context > spec.max_context)
    throw Fail(ErrorKind::kBadRequest, "a context of {} tokens: the model allows 1 to {}", request.context,
               spec.max_context);
  if (prompt == 0) throw Fail(ErrorKind::kBadRequest, "the prompt is empty: give at least one token");
  if (prompt > size_t(context))
    throw Fail(ErrorKind::kBadRequest,
               "the prompt has {} tokens and the context holds {}: shorten the prompt by {} tokens", prompt,
               context, prompt - size_t(context));
  if (request.max_tokens < 0)
    throw Fail(ErrorKind::kBadRequest, "max_tokens is {}: give 0 or more", request.max_tokens);
  if (request.prefill_chunk < 1)
    throw Fail(ErrorKind::kBadRequest, "the prefill chunk is {}: give 1 or more tokens",
               request.prefill_chunk);
  CheckSampleSpec(request.sample, spec.vocab);

  Plan plan;
  plan.max_tokens = std::min(request.max_tokens, context - int(prompt) + 1);
  plan.capacity = std::max(int(prompt) + plan.max_tokens - 1, 1);
  plan.variant.rope = FixRope(spec, plan.capacity);
  return plan;
}

// For clean-up after a device threw: what it throws now says nothing new.
template <class F>
void Quietly(F f) {
  try {
    f();
  } catch (const std::exception&) {
    return;
  }
}

// The request's place in the decode device: its slot and the steps that wait to be collected. Whatever
// happens, both are gone when this object is.
class DecodeSlot {
 public:
  DecodeSlot(DecodeDevice& device, const Plan& plan)
      : device_(device), id_(device.Open(plan.capacity, plan.variant)) {}
  DecodeSlot(const DecodeSlot&) = delete;
  DecodeSlot& operator=(const DecodeSlot&) = delete;
  ~DecodeSlot() {
    Quietly([&] { Drain(); });
    Quietly([&] { device_.Close(id_); });
  }

  void Import(const KvSegment& segment) { device_.Import(id_, segment); }

  // Rows of the prompt that continue the slot.
  void Extend(std::span<const TokenId> ids) {
    const auto most = size_t(device_.Info().max_rows);
    for (size_t done = 0; done < ids.size(); done += most) {
      const auto rows = ids.subspan(done, std::min(most, ids.size() - done));
      std::vector<int32_t> positions(rows.size());
      std::iota(positions.begin(), positions.end(), device_.Length(id_));
      const std::vector<SlotId> slots(rows.size(), id_);
      device_.Collect(device_.Submit({{rows, positions, slots, {}}, {}}));
    }
  }

  // One row that continues the slot; its token is chosen by `sample`.
  void Submit(TokenId id, const SampleSpec& sample) {
    const int32_t position = device_.Length(id_), row = 0;
    waiting_.push_back(device_.Submit({{{&id, 1}, {&position, 1}, {&id_, 1}, {&row, 1}}, {&sample, 1}}));
  }
  size_t waiting() const { return waiting_.size(); }

  Sampled Collect() {
    const StepId step = waiting_.front();
    waiting_.pop_front();
    auto rows = device_.Collect(step);
    PD_CHECK(rows.size() == 1 && rows[0].slot == id_);
    return std::move(rows[0].sampled);
  }

  // Forgets steps past the end of the text, so that what the slot holds is the text's.
  void CutTo(int tokens) {
    Drain();
    if (device_.Length(id_) > tokens) device_.Truncate(id_, tokens);
  }

 private:
  void Drain() {
    while (!waiting_.empty()) Collect();
  }

  DecodeDevice& device_;
  SlotId id_;
  std::deque<StepId> waiting_;
};

// Everything but the prompt's last token, chunk by chunk: what the prefill device takes, then the rest by the
// decode device. False when cancelled.
bool Prefill(PrefillDevice& device, DecodeSlot& slot, const ModelSpec& spec, const GenerateRequest& request,
             const Plan& plan, GenerateStats& stats) {
  const auto tokens = request.prompt.first(request.prompt.size() - 1);
  if (tokens.empty()) return !Cancelled(request);
  if (const auto reason = device.Refuses(plan.variant))
    throw Fail(ErrorKind::kUnsupported, "{} cannot prefill this request: {}", device.Info().name, *reason);
  Stopwatch begin;
  const auto session = device.Begin(int(tokens.size()), plan.variant, {});
  stats.prefill_ms += begin.Milliseconds();
  const auto size = size_t(request.prefill_chunk);
  size_t first = 0;
  for (size_t count; first < tokens.size(); first += count) {
    if (Cancelled(request)) return false;
    const auto reach = size_t(device.Reach(int(first)));
    if (reach <= first) break;
    count = std::min({size, reach - first, tokens.size() - first});
    const auto chunk = tokens.subspan(first, count);
    Stopwatch run;
    const KvSegment segment = session->Run(chunk, int(first));
    stats.prefill_ms += run.Milliseconds();
    stats.prefill_tokens += int(chunk.size());

    Stopwatch import;
    slot.Import(segment);
    stats.handoff_ms += import.Milliseconds();
    stats.handoff_bytes += segment.bytes(spec);
  }
  for (; first < tokens.size(); first += size) {
    if (Cancelled(request)) return false;
    const auto chunk = tokens.subspan(first, std::min(size, tokens.size() - first));
    Stopwatch run;
    slot.Extend(chunk);
    stats.tail_ms += run.Milliseconds();
    stats.tail_tokens += int(chunk.size());
  }
  return !Cancelled(request);
}

// Samples until the text ends. The device is kept one step ahead: step n+1 is submitted with kLastSampled
// before the token of step n is read, so that it never waits for the host. The first step goes alone, for its
// token is the one that somebody waits for, and a device that computes in Submit would hold it back by a
// step.
FinishReason Decode(DecodeSlot& slot, const GenerateRequest& request, const Plan& plan, const TokenSink& sink,
                    const Stopwatch& since_call, GenerateResult& result) {
  const int prompt = int(request.prompt.size());
  std::vector<TokenId> sequence(request.prompt.begin(), request.prompt.end());
  sequence.reserve(size_t(prompt) + size_t(plan.max_tokens));
  result.tokens.reserve(size_t(plan.max_tokens));
  int submitted = 0;
  const auto submit = [&](TokenId id) {
    SampleSpec sample = request.sample;
    sample.draw = uint64_t(submitted++);
    sample.penalties.context = sequence;
    sample.penalties.prompt_tokens = prompt;
    slot.Submit(id, sample);
  };

  const Stopwatch decode;
  submit(request.prompt.back());
  for (;;) {
    if (!result.tokens.empty() && submitted < plan.max_tokens) submit(kLastSampled);
    const Sampled sampled = slot.Collect();
    if (result.tokens.empty()) result.stats.first_token_ms = since_call.Milliseconds();
    result.tokens.push_back(sampled.token);
    sequence.push_back(sampled.token);
    result.stats.decode_tokens = int(result.tokens.size());
    result.stats.decode_ms = decode.Milliseconds();

    if (std::ranges::find(request.end_tokens, sampled.token) != request.end_tokens.end())
      return FinishReason::kStop;
    if (!sink(sampled)) return FinishReason::kStop;
    if (int(result.tokens.size()) == plan.max_tokens) return FinishReason::kLength;
    if (Cancelled(request)) return FinishReason::kCancelled;
    if (slot.waiting() == 0) submit(sampled.token);
  }
}

}  // namespace

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

GenerateResult Generate(const ModelSpec& spec, PrefillDevice& prefill, DecodeDevice& decode,
                        const GenerateRequest& request, const TokenSink& sink) {
  const Stopwatch since_call;
  const Plan plan = MakePlan(spec, request);
  GenerateResult result;
  DecodeSlot slot(decode, plan);
  if (!Prefill(prefill, slot, spec, request, plan, result.stats)) {
    result.finish = FinishReason::kCancelled;
  } else if (plan.max_tokens > 0) {
    result.finish = Decode(slot, request, plan, sink, since_call, result);
    slot.CutTo(int(request.prompt.size() + result.tokens.size()) - 1);
  }
  return result;
}

}  // namespace pd
