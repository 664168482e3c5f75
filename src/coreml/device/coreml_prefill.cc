#include "coreml/device/coreml_prefill.h"

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "coreml/device/estimated_cost.h"
#include "coreml/device/history.h"
#include "coreml/device/inputs.h"
#include "coreml/device/results.h"
#include "coreml/mil/prefill.h"

namespace pd {
namespace {

class Session;

// What a bundle's keys and values depend on besides the model: its files.
std::string Producer(const Bundle& bundle) {
  std::string files = "coreml";
  for (const auto& [name, file] : bundle.files) files += fmt::format(" {} {:x}", name, file.digest);
  return files;
}

class CoreMlPrefill final : public PrefillDevice {
 public:
  CoreMlPrefill(const ModelSource& model, const Bundle& bundle, const PredictorFactory& open,
                CoreMlOptions options)
      : spec_(model.spec),
        embed_(model.tensors.embed),
        bundle_(bundle),
        cost_(EstimatedCost(model.spec)),
        cancelled_(std::move(options.cancelled)),
        inputs_(spec_, embed_, bundle.stream_scale, bundle.lowering.attention) {
    identity_ = {SpecDigest(spec_), model.Digest(), ComputedBy(Producer(bundle))};
    CheckBundleModel(bundle, identity_.spec, identity_.weights);
    info_.name = std::move(options.name);
    info_.kv_id = identity_;
    info_.physical = options.physical;
    for (const PrefillShape& f : bundle.functions) info_.max_rows = std::max(info_.max_rows, f.tokens);
    for (int layer = 0; layer < int(spec_.layers.size()); ++layer) {
      past_keys_[mil::PastKeys(layer)] = layer;
      past_values_[mil::PastValues(layer)] = layer;
    }
    info_.memory = {.kv = DType::kF16};
    for (const BundleShard& shard : bundle.shards) {
      info_.weight_bytes += size_t(shard.weight_bytes);
      predictors_.push_back(open(bundle.path / shard.package));
    }
  }

  const DeviceInfo& Info() const override { return info_; }
  std::optional<std::string> Refuses(const Variant&) const override {
    return std::nullopt;
  }  // tables are inputs
  std::vector<PrefillShape> Shapes() const override { return bundle_.functions; }
  void SetCallCost(CallCost cost) override { cost_ = std::move(cost); }
  int Reach(int first) const override { return pd::Reach(bundle_.functions, first); }
  std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                        std::span<const KvSegment> prefix) override;

  // The functions for sequences of up to `capacity` tokens: larger buckets would only make the history
  // larger.
  std::vector<PrefillShape> FunctionsFor(int capacity) const {
    int enough = INT_MAX;  // the smallest bucket that holds all but the last token
    for (const PrefillShape& f : bundle_.functions)
      if (f.history + 1 >= capacity) enough = std::min(enough, f.history);
    std::vector<PrefillShape> functions;
    for (const PrefillShape& f : bundle_.functions)
      if (f.history <= enough) functions.push_back(f);
    return functions;
  }

  // The keys and values of a chunk; `history` holds what comes before it, and is extended by the chunk. If a
  // function is disabled meanwhile, the others compute the rest, as far as they reach.
  KvSegment Run(std::span<const TokenId> chunk, const Variant& variant,
                std::span<const PrefillShape> functions, int capacity, History& history) {
    const int first = history.count(), end = first + int(chunk.size());
    KvIdentity id = identity_;
    id.variant = variant;
    std::vector<CallResults> results;
    for (bool whole = false; !whole;) {
      const std::vector<PrefillShape> usable = Usable(functions);
      if (usable.size() < functions.size() && pd::Reach(usable, history.count()) < end)
        throw Fail(ErrorKind::kDevice, "{}: {}", info_.name, WhyNotUsable(functions));
      try {
        RunCalls(PlanCalls(usable, history.count(), end - history.count(), cost_),
                 chunk.subspan(size_t(history.count() - first)), variant, id, history, results);
        whole = true;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kDevice) throw;
        const std::vector<mil::PrefillShape> left = Usable(functions);
        if (left.size() == usable.size() || pd::Reach(left, history.count()) < end) throw;
      }
    }
    if (end < capacity) PrepareNext(Usable(functions), end, std::min(int(chunk.size()), capacity - end));
    return SegmentOf(spec_, id, bundle_.lowering.keys, std::move(results));
  }

  const ModelSpec& spec() const { return spec_; }
  const KvIdentity& identity() const { return identity_; }

 private:
  std::vector<PrefillShape> Usable(std::span<const PrefillShape> functions) const {
    std::vector<PrefillShape> usable;
    for (const PrefillShape& f : functions)
      if (std::ranges::none_of(predictors_, [&, name = mil::FunctionName(f)](const auto& predictor) {
            return predictor->GivenUp(name).has_value();
          }))
        usable.push_back(f);
    return usable;
  }

  // The reason given for the first disabled function.
  std::string WhyNotUsable(std::span<const PrefillShape> functions) const {
    for (const PrefillShape& f : functions)
      for (const auto& predictor : predictors_)
        if (const auto why = predictor->GivenUp(mil::FunctionName(f)))
          return fmt::format("function {} is not used: {}", mil::FunctionName(f), *why);
    return "every function is disabled";
  }

  // The calls of a chunk, with `ids` from where the history ends. Adds to `results` too.
  void RunCalls(const std::vector<PlannedCall>& calls, std::span<const TokenId> ids, const Variant& variant,
                const KvIdentity& id, History& history, std::vector<CallResults>& results) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (cancelled_ && cancelled_()) throw Fail(ErrorKind::kCancelled, "interrupted");
      const PlannedCall& call = calls[i];
      if (i + 1 < calls.size()) Prepare(calls[i + 1].shape);
      results.push_back({call, Call(call, ids.first(size_t(call.count)), variant, history)});
      ids = ids.subspan(size_t(call.count));
      try {
        history.Append(SegmentOf(spec_, id, bundle_.lowering.keys, {results.back()}));
      } catch (const Error& error) {  // a wrong result: drop it and disable the functions that made it
        results.pop_back();
        for (const auto& predictor : predictors_)
          predictor->Distrust(mil::FunctionName(call.shape), error.what());
        throw;
      }
    }
  }

  void Prepare(const PrefillShape& shape) {
    for (const auto& predictor : predictors_) predictor->Prepare(mil::FunctionName(shape));
  }
  void PrepareNext(const std::vector<PrefillShape>& functions, int first, int count) {
    count = std::min(count, pd::Reach(functions, first) - first);
    if (count > 0) Prepare(PlanCalls(functions, first, count, cost_).front().shape);
  }

  // Calls the shards in order and passes the stream from each to the next.
  HalfTensors Call(const PlannedCall& call, std::span<const TokenId> ids, const Variant& variant,
                   const History& history) {
    HalfTensors inputs, results;
    inputs_.AddEmbedded(call, ids, inputs);
    inputs_.AddTables(call, variant.rope, inputs);
    for (size_t i = 0; i < predictors_.size(); ++i) {
      HalfTensors given;
      for (const std::string& name : predictors_[i]->Inputs(mil::FunctionName(call.shape)))
        given[name] = Find(name, inputs, history, call.shape.history);
      HalfTensors made = predictors_[i]->Predict(mil::FunctionName(call.shape), given, nullptr);
      if (auto stream = made.extract(mil::kHiddenOut)) inputs[mil::kHidden] = std::move(stream.mapped());
      results.merge(made);
    }
    return results;
  }

  HalfTensor Find(const std::string& name, const HalfTensors& inputs, const History& history,
                  int bucket) const {
    if (const auto it = inputs.find(name); it != inputs.end()) return it->second;
    if (const auto it = past_keys_.find(name); it != past_keys_.end())
      return history.Keys(it->second, bucket);
    if (const auto it = past_values_.find(name); it != past_values_.end())
      return history.Values(it->second, bucket);
    throw Fail(ErrorKind::kUnsupported, "{}: the program needs an unknown input '{}'; export the model again",
               bundle_.path.string(), name);
  }

  ModelSpec spec_;
  TensorView embed_;
  Bundle bundle_;
  KvIdentity identity_;  // with the default rope variant
  DeviceInfo info_;
  CallCost cost_;
  std::function<bool()> cancelled_;
  InputMaker inputs_;
  std::map<std::string, int> past_keys_, past_values_;  // layers by input name
  std::vector<std::unique_ptr<Predictor>> predictors_;  // one per shard
};

class Session final : public PrefillSession {
 public:
  Session(CoreMlPrefill& device, int capacity, const Variant& variant)
      : device_(device),
        variant_(variant),
        capacity_(capacity),
        functions_(device.FunctionsFor(capacity)),
        history_(device.spec(), variant.rope, LargestHistory()) {}

  void Import(const KvSegment& segment) {
    KvIdentity id = device_.identity();
    id.variant = variant_;
    CheckSegment(segment, device_.spec(), id);
    CheckContinues(segment.first);
    history_.Append(segment);
  }

  KvSegment Run(std::span<const TokenId> chunk, int first) override {
    CheckContinues(first);
    return device_.Run(chunk, variant_, functions_, capacity_, history_);
  }

 private:
  int LargestHistory() const {
    int largest = 0;
    for (const PrefillShape& f : functions_) largest = std::max(largest, f.history);
    return largest;
  }
  void CheckContinues(int first) const {
    if (first != history_.count())
      throw Fail(ErrorKind::kBadRequest, "{}: a chunk starts at token {}, the session continues at {}",
                 device_.Info().name, first, history_.count());
  }

  CoreMlPrefill& device_;
  Variant variant_;
  int capacity_;
  std::vector<PrefillShape> functions_;
  History history_;
};

std::unique_ptr<PrefillSession> CoreMlPrefill::Begin(int capacity, const Variant& variant,
                                                     std::span<const KvSegment> prefix) {
  auto session = std::make_unique<Session>(*this, capacity, variant);
  for (const KvSegment& segment : prefix) session->Import(segment);
  return session;
}

}  // namespace

std::unique_ptr<PrefillDevice> OpenCoreMlPrefill(const ModelSource& model, const Bundle& bundle,
                                                 const PredictorFactory& open, CoreMlOptions options) {
  return std::make_unique<CoreMlPrefill>(model, bundle, open, std::move(options));
}

}  // namespace pd
