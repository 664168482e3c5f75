#include "coreml/device/coreml_prefill.h"

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "coreml/device/history.h"
#include "coreml/device/inputs.h"
#include "coreml/device/results.h"
#include "coreml/mil/prefill.h"

namespace pd {
namespace {

class Session;

class CoreMlPrefill final : public PrefillDevice {
 public:
  CoreMlPrefill(const ModelSource& model, const Bundle& bundle, const PredictorFactory& open,
                CoreMlOptions options)
      : spec_(model.spec),
        embed_(model.tensors.embed),
        bundle_(bundle),
        cost_(options.cost ? std::move(options.cost) : EstimatedCost(model.spec)),
        inputs_(spec_, embed_, bundle.stream_scale, bundle.lowering.attention) {
    Weights<TensorView> tensors = model.tensors;
    identity_ = {SpecDigest(spec_), WeightsDigest(spec_, tensors), {}};
    CheckBundleModel(bundle, identity_.spec, identity_.weights);
    info_.name = std::move(options.name);
    info_.physical = options.physical;
    for (const mil::PrefillShape& f : bundle.functions) info_.max_rows = std::max(info_.max_rows, f.tokens);
    for (int layer = 0; layer < int(spec_.layers.size()); ++layer) {
      past_keys_[mil::PastKeys(layer)] = layer;
      past_values_[mil::PastValues(layer)] = layer;
    }
    for (const LayerSpec& layer : spec_.layers)
      info_.kv_bytes_per_token += 2 * sizeof(F16) * size_t(layer.attn.kv_width());
    for (const BundleShard& shard : bundle.shards) {
      info_.weight_bytes += size_t(shard.weight_bytes);
      predictors_.push_back(open(bundle.path / shard.package));
    }
  }

  const DeviceInfo& Info() const override { return info_; }
  std::optional<std::string> Refuses(const Variant&) const override {
    return std::nullopt;
  }  // tables are inputs
  int Reach(int first) const override { return pd::Reach(bundle_.functions, first); }
  std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                        std::span<const KvSegment> prefix) override;

  // The functions that sequences of up to `capacity` tokens use: those of larger buckets would only make
  // their history larger.
  std::vector<mil::PrefillShape> FunctionsFor(int capacity) const {
    int enough = INT_MAX;  // the smallest bucket that holds all but the last token
    for (const mil::PrefillShape& f : bundle_.functions)
      if (f.history + 1 >= capacity) enough = std::min(enough, f.history);
    std::vector<mil::PrefillShape> functions;
    for (const mil::PrefillShape& f : bundle_.functions)
      if (f.history <= enough) functions.push_back(f);
    return functions;
  }

  // The keys and values of a chunk; `history` holds what comes before it, and gets what is computed.
  KvSegment Run(std::span<const TokenId> chunk, const Variant& variant,
                std::span<const mil::PrefillShape> functions, History& history) {
    const int first = history.count();
    KvIdentity id = identity_;
    id.rope = variant.rope;
    std::vector<CallResults> results;
    for (const PlannedCall& call : PlanCalls(functions, first, int(chunk.size()), cost_)) {
      const auto ids = chunk.subspan(size_t(call.first - first), size_t(call.count));
      results.push_back({call, Call(call, ids, variant, history)});
      history.Append(SegmentOf(spec_, id, bundle_.lowering.keys, {results.back()}));
    }
    return SegmentOf(spec_, id, bundle_.lowering.keys, std::move(results));
  }

  const ModelSpec& spec() const { return spec_; }
  const KvIdentity& identity() const { return identity_; }

 private:
  // Every shard in turn, the stream passed on between them.
  HalfTensors Call(const PlannedCall& call, std::span<const TokenId> ids, const Variant& variant,
                   const History& history) {
    HalfTensors inputs, results;
    inputs_.AddEmbedded(call, ids, inputs);
    inputs_.AddTables(call, variant.rope, inputs);
    for (size_t i = 0; i < predictors_.size(); ++i) {
      HalfTensors given;
      for (const std::string& name : predictors_[i]->Inputs(mil::FunctionName(call.shape)))
        given[name] = Find(name, inputs, history, call.shape.history);
      HalfTensors made = predictors_[i]->Predict(mil::FunctionName(call.shape), given);
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
    throw Fail(ErrorKind::kUnsupported, "{}: the program wants an input '{}'; export the model again",
               bundle_.path.string(), name);
  }

  ModelSpec spec_;
  TensorView embed_;
  Bundle bundle_;
  KvIdentity identity_;  // with the default rope variant
  DeviceInfo info_;
  CallCost cost_;
  InputMaker inputs_;
  std::map<std::string, int> past_keys_, past_values_;  // layers by input name
  std::vector<std::unique_ptr<Predictor>> predictors_;  // one for each shard
};

class Session final : public PrefillSession {
 public:
  Session(CoreMlPrefill& device, int capacity, const Variant& variant)
      : device_(device),
        variant_(variant),
        functions_(device.FunctionsFor(capacity)),
        history_(device.spec(), variant.rope, LargestHistory()) {}

  void Import(const KvSegment& segment) {
    KvIdentity id = device_.identity();
    id.rope = variant_.rope;
    CheckSegment(segment, device_.spec(), id);
    CheckContinues(segment.first());
    history_.Append(segment);
  }

  KvSegment Run(std::span<const TokenId> chunk, int first) override {
    CheckContinues(first);
    return device_.Run(chunk, variant_, functions_, history_);
  }

 private:
  int LargestHistory() const {
    int largest = 0;
    for (const mil::PrefillShape& f : functions_) largest = std::max(largest, f.history);
    return largest;
  }
  void CheckContinues(int first) const {
    if (first != history_.count())
      throw Fail(ErrorKind::kBadRequest, "{}: a chunk starts at token {}, the session continues at {}",
                 device_.Info().name, first, history_.count());
  }

  CoreMlPrefill& device_;
  Variant variant_;
  std::vector<mil::PrefillShape> functions_;
  History history_;
};

std::unique_ptr<PrefillSession> CoreMlPrefill::Begin(int capacity, const Variant& variant,
                                                     std::span<const KvSegment> prefix) {
  auto session = std::make_unique<Session>(*this, capacity, variant);
  for (const KvSegment& segment : prefix) session->Import(segment);
  return session;
}

}  // namespace

std::vector<int64_t> DenseStrides(const mil::Dims& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::unique_ptr<PrefillDevice> OpenCoreMlPrefill(const ModelSource& model, const Bundle& bundle,
                                                 const PredictorFactory& open, CoreMlOptions options) {
  return std::make_unique<CoreMlPrefill>(model, bundle, open, std::move(options));
}

}  // namespace pd
