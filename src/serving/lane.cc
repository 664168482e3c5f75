#include "serving/lane.h"

#include <chrono>
#include <numeric>
#include <utility>

#include "base/clock.h"

namespace pd {

JobResult LaneWorker::Run(const Job& job) {
  try {
    return std::visit([this](const auto& j) { return Do(j); }, job);
  } catch (...) {
    return CurrentFailure();
  }
}

JobResult LaneWorker::Do(const OpenSlot& job) { return devices_.decode->Open(job.capacity, job.variant); }

JobResult LaneWorker::Do(const PrefillChunk& job) {
  PrefillDevice& device = *devices_.prefill.at(job.unit);
  if (job.begin) {
    if (const auto reason = device.Refuses(job.begin->variant))
      throw Fail(ErrorKind::kUnsupported, "{} cannot prefill this request: {}", device.Info().name, *reason);
    sessions_[job.request] = device.Begin(job.begin->capacity, job.begin->variant, job.begin->prefix);
  }
  const auto tokens = std::span(job.of->prompt).subspan(size_t(job.first), size_t(job.count));
  Chunk chunk{sessions_.at(job.request)->Run(tokens, job.first), 0};
  chunk.bytes = CompactBytes(chunk.segment, spec_);
  if (job.compact) chunk.segment = Compact(chunk.segment, spec_);
  return chunk;
}

JobResult LaneWorker::Do(const EndPrefill& job) {
  const auto at = sessions_.find(job.request);
  if (at == sessions_.end()) return {};  // its first chunk failed
  const std::unique_ptr<PrefillSession> session = std::move(at->second);
  sessions_.erase(at);
  session->Close();
  return {};
}

JobResult LaneWorker::Do(const ImportSegment& job) {
  devices_.decode->Import(job.slot, job.segment);
  return {};
}

JobResult LaneWorker::Do(const SubmitStep& job) {
  std::vector<SampleSpec> samples;
  for (const SubmitStep::Sampling& sampling : job.sample) {
    SampleSpec& spec = samples.emplace_back(sampling.spec);
    spec.bias = sampling.of->bias;
    spec.penalties.context = sampling.context;
    if (!sampling.context.empty()) spec.penalties.prompt_tokens = int(sampling.of->prompt.size());
  }
  std::vector<int32_t> logits(samples.size());
  std::iota(logits.begin(), logits.end(), 0);
  uncollected_.push_back(devices_.decode->Submit({{job.ids, job.pos, job.slot, logits}, samples}));
  return {};
}

JobResult LaneWorker::Do(const CollectStep&) {
  const StepId step = uncollected_.front();
  uncollected_.pop_front();
  return devices_.decode->Collect(step);
}

JobResult LaneWorker::Do(const ExportSegment& job) {
  Chunk chunk{Compact(devices_.decode->Export(job.slot, job.first, job.count), spec_), 0};
  chunk.bytes = CompactBytes(chunk.segment, spec_);
  return chunk;
}

JobResult LaneWorker::Do(const TruncateSlot& job) {
  devices_.decode->Truncate(job.slot, job.count);
  return {};
}

JobResult LaneWorker::Do(const CloseSlot& job) {
  devices_.decode->Close(job.slot);
  return {};
}

Lane::Lane(const ModelSpec& spec, LaneDevices devices, Options options, std::function<void(Done)> report)
    : id_(options.id),
      report_(std::move(report)),
      worker_(std::make_unique<LaneWorker>(spec, std::move(devices))),
      thread_(options.physical, [this, last = std::move(options.last)] {
        worker_.reset();
        if (last) last();
      }) {}

void Lane::Post(Job job) {
  thread_.Start([this, job = std::move(job)] {
    const auto start = std::chrono::steady_clock::now();
    JobResult result = worker_->Run(job);
    report_({id_, std::move(result), MillisecondsSince(start)});
  });
}

}  // namespace pd
