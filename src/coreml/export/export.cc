#include "coreml/export/export.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "coreml/export/partial_folder.h"
#include "coreml/export/range.h"
#include "coreml/export/sample_pass.h"
#include "coreml/package/blob.h"
#include "coreml/package/manifest.h"
#include "coreml/package/package.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

using Progress = std::function<void(const ExportProgress&)>;

constexpr int kStep = 32;  // chunks and buckets are multiples of 64-byte rows of halves

std::vector<int> Checked(std::vector<int> values, int least, const char* field) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.empty()) throw Fail(ErrorKind::kBadRequest, "{}: give at least one number", field);
  for (int v : values)
    if (v < least || v % kStep != 0 || v > 1 << 20)
      throw Fail(ErrorKind::kBadRequest, "{}: {} is not a multiple of {} from {} to {}", field, v, kStep,
                 least, 1 << 20);
  return values;
}

// Cuts the defaults to what a context of this many tokens needs: the last value kept is the first that covers
// the context, limited to the context.
std::vector<int> Covering(std::vector<int> values, int context) {
  const int rounded = (context + kStep - 1) / kStep * kStep;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] >= rounded) {
      values[i] = rounded;
      values.resize(i + 1);
    }
  return values;
}

int64_t SourceBytes(const Weights<TensorView>& tensors, const ModelSpec& spec) {
  int64_t bytes = 0;
  ForEachWeight(spec, tensors,
                [&](const TensorView& t, const WeightInfo&) { bytes += int64_t(t.bytes.size()); });
  return bytes;
}

// Everything that one export needs.
class Exporter {
 public:
  Exporter(const ModelSource& model, const ExportOptions& options, const Progress& progress)
      : model_(model), spec_(model.spec), tensors_(model.tensors), options_(options), progress_(progress) {
    CheckSupport(spec_, "coreml", mil::PrefillSupport());
    for (const LayerSpec& layer : spec_.layers)
      if (const auto& norm = AttentionOf(layer).qk_norm;
          options.lowering.keys == KeyForm::kRaw && norm && norm->after_rope)
        throw Fail(ErrorKind::kUnsupported,
                   "raw keys: this model norms keys after rotation, so they have no raw form");
    report_.bundle.family = model.family;
    report_.bundle.spec = SpecDigest(spec_);
    report_.bundle.format = options.weights;
    report_.bundle.lowering = options.lowering;
    report_.bundle.functions = ChooseShapes(spec_, options);
    report_.source_bytes = SourceBytes(tensors_, spec_);
  }

  ExportReport Run(const fs::path& folder) && {
    report_.bundle.path = folder;
    progress_({"digest", 0, report_.source_bytes});
    report_.bundle.weights = model_.Digest();
    progress_({"digest", report_.source_bytes, report_.source_bytes});
    scales_ = UnitScales(spec_);
    if (!options_.sample.empty()) Measure();
    report_.bundle.stream_scale = scales_.stream;
    Plan();
    for (size_t i = 0; i < shards_.size(); ++i) WriteShard(i);
    if (!options_.sample.empty() && options_.weights != WeightFormat::kFp16) CheckQuality();
    WriteBundle(report_.bundle);
    for (const auto& [name, file] : report_.bundle.files) report_.written_bytes += file.bytes;
    return std::move(report_);
  }

 private:
  void Measure() {
    const auto layers = int64_t(spec_.layers.size());
    Weights<StreamedWeight> source = StreamSource(spec_, tensors_);
    measured_ = RunSample(spec_, source, options_.sample, pool_,
                          [&](int done) { progress_({"measure", done, layers}); });
    scales_ = ChooseScales(spec_, measured_.layers);
    const std::vector<float> magnitudes = ScaledMagnitudes(spec_, measured_.layers, scales_);
    for (size_t i = 0; i < magnitudes.size(); ++i) {
      if (!(magnitudes[i] <= kMostMagnitude))
        throw Fail(
            ErrorKind::kUnsupported,
            "layer {}: activations reach {} on the sample text, above the {} that fp16 programs can hold; "
            "this model cannot be prefilled on the Neural Engine",
            i, magnitudes[i], kMostMagnitude);
      report_.layers.push_back({.magnitude = magnitudes[i]});
    }
  }

  // Which layers go into which package, and where each constant lies in the weight file.
  void Plan() {
    std::vector<int64_t> layer_bytes(spec_.layers.size());
    BlobLayout scratch;
    ForEachWeight(spec_, tensors_, [&](const TensorView&, const WeightInfo& info) {
      if (!IsNeeded(spec_, info)) return;
      layer_bytes[size_t(info.layer)] += StoredBytes(PlanWeight(spec_, info, options_.weights, scratch));
    });
    shards_ = ChooseShards(layer_bytes, options_.max_shard_bytes);
    std::vector<BlobLayout> layouts(shards_.size());
    encoded_ =
        MapWeights<mil::EncodedWeight>(spec_, tensors_, [&](const TensorView&, const WeightInfo& info) {
          if (!IsNeeded(spec_, info)) return mil::EncodedWeight{info, {}};
          return PlanWeight(spec_, info, options_.weights, layouts[ShardOf(info.layer)]);
        });
    const Weights<const mil::EncodedWeight*> pointers = MapWeights<const mil::EncodedWeight*>(
        spec_, encoded_, [](const mil::EncodedWeight& w, const WeightInfo&) { return &w; });
    programs_.resize(shards_.size());
    for (const mil::PrefillShape& shape : report_.bundle.functions) {
      std::vector<mil::Function> functions =
          mil::LowerPrefill(spec_, pointers, scales_, options_.lowering, shape, shards_);
      PD_CHECK(functions.size() == shards_.size());
      for (size_t i = 0; i < shards_.size(); ++i)
        programs_[i].functions[mil::FunctionName(shape)] = std::move(functions[i]);
    }
    LintPrograms(layer_bytes);
  }

  void LintPrograms(const std::vector<int64_t>& layer_bytes) {
    for (size_t i = 0; i < shards_.size(); ++i) {
      const int end = i + 1 < shards_.size() ? shards_[i + 1] : int(spec_.layers.size());
      const auto begin = layer_bytes.begin() + shards_[i];
      report_.bundle.shards.push_back({fmt::format("shard_{}.mlpackage", i), shards_[i], end,
                                       std::accumulate(begin, layer_bytes.begin() + end, int64_t(0))});
      for (const auto& [name, function] : programs_[i].functions) {
        report_.lint.push_back(mil::Lint(name, function));
        report_.lint_package.push_back(report_.bundle.shards.back().package);
        const mil::LintedFunction& lint = report_.lint.back();
        if (!lint.HasViolation() || options_.force) continue;
        const auto op = std::find_if(lint.ops.begin(), lint.ops.end(), [](const mil::LintedOp& o) {
          return o.verdict == mil::Verdict::kViolation;
        });
        const std::string what = op != lint.ops.end()
                                     ? fmt::format("{} '{}': {}", op->type, op->name, op->reason)
                                     : lint.violations.front();
        throw Fail(ErrorKind::kUnsupported, "{}: {}: {}; force exports it despite rule violations",
                   report_.bundle.shards.back().package, name, what);
      }
    }
  }

  void WriteShard(size_t index) {
    const BundleShard& shard = report_.bundle.shards[index];
    const fs::path package = report_.bundle.path / shard.package;
    fs::create_directories(package / kWeightsPlace);
    BlobWriter out(package / kWeightsPlace / "weight.bin");
    WeightEncoder encoder(out, measured_.importance);
    std::vector<const mil::EncodedWeight*> planned;
    ForEachWeight(spec_, std::as_const(encoded_),
                  [&](const mil::EncodedWeight& w, const WeightInfo&) { planned.push_back(&w); });
    size_t next = 0;
    ForEachWeight(spec_, tensors_, [&](const TensorView& tensor, const WeightInfo& info) {
      const mil::EncodedWeight& weight = *planned[next++];
      if (!IsNeeded(spec_, info) || ShardOf(info.layer) != index) return;
      encoder.Write(weight, tensor, mil::FoldedScale(spec_, scales_, info));
      tensor.Forget();
      source_done_ += int64_t(tensor.bytes.size());
      progress_({"write", source_done_, report_.source_bytes});
    });
    out.Finish();
    Package written;
    written.program = std::move(programs_[index]);
    written.program.build_info["pd-engine-rules"] = std::to_string(kRulesVersion);
    written.default_function = mil::FunctionName(report_.bundle.functions.front());
    WritePackage(package, written);
  }

  void CheckQuality() {
    std::vector<BlobFile> files;
    files.reserve(report_.bundle.shards.size());
    for (const BundleShard& shard : report_.bundle.shards)
      files.emplace_back(report_.bundle.path / shard.package / kWeightsPlace / "weight.bin");
    std::vector<const BlobFile*> file_of_layer;
    file_of_layer.reserve(spec_.layers.size());
    for (int layer = 0; layer < int(spec_.layers.size()); ++layer)
      file_of_layer.push_back(&files[ShardOf(layer)]);
    Weights<StreamedWeight> stored = StreamEncoded(spec_, tensors_, scales_, encoded_, file_of_layer);
    const auto layers = int64_t(spec_.layers.size());
    const SamplePass pass = RunSample(spec_, stored, options_.sample, pool_,
                                      [&](int done) { progress_({"check", done, layers}); });
    for (size_t i = 0; i < report_.layers.size(); ++i) {
      const LayerSample &got = pass.layers[i], &want = measured_.layers[i];
      report_.layers[i].k_cosine = Cosine(got.keys, want.keys);
      report_.layers[i].v_cosine = Cosine(got.values, want.values);
      report_.layers[i].k_rms_ratio = RmsRatio(got.keys, want.keys);
      report_.layers[i].v_rms_ratio = RmsRatio(got.values, want.values);
    }
  }

  size_t ShardOf(int layer) const {
    return size_t(std::upper_bound(shards_.begin(), shards_.end(), layer) - shards_.begin()) - 1;
  }

  ThreadPool pool_{std::max(1, int(std::thread::hardware_concurrency()))};
  const ModelSource& model_;
  const ModelSpec& spec_;
  const Weights<TensorView>& tensors_;
  const ExportOptions& options_;
  const Progress& progress_;
  ExportReport report_;
  SamplePass measured_;
  mil::RangeScales scales_;
  std::vector<int> shards_;  // first layers
  Weights<mil::EncodedWeight> encoded_;
  std::vector<mil::Program> programs_;
  int64_t source_done_ = 0;
};

}  // namespace

std::vector<mil::PrefillShape> ChooseShapes(const ModelSpec& spec, const ExportOptions& options) {
  const std::vector<int> chunks =
      options.chunks ? Checked(*options.chunks, kStep, "chunks") : Covering({128, 512}, spec.max_context);
  const std::vector<int> histories = options.histories ? Checked(*options.histories, 0, "history")
                                                       : Covering({0, 1024, 4096}, spec.max_context);
  std::vector<mil::PrefillShape> shapes;
  for (int t : chunks)
    for (int s : histories) shapes.push_back({t, s});
  return shapes;
}

std::vector<int> ChooseShards(const std::vector<int64_t>& layer_bytes, int64_t max_bytes) {
  const int64_t total = std::accumulate(layer_bytes.begin(), layer_bytes.end(), int64_t(0));
  // The fewest shards that an even division allows. Each takes layers up to its share or the limit, the last
  // takes the rest.
  for (int64_t count = std::max<int64_t>(1, (total + max_bytes - 1) / max_bytes);; ++count) {
    std::vector<int> begins = {0};
    int64_t shard = 0, most = 0;
    for (size_t i = 0; i < layer_bytes.size(); ++i) {
      const int64_t share = (total + count - 1) / count;
      const bool last = int64_t(begins.size()) == count;
      if (shard > 0 &&
          ((!last && shard + layer_bytes[i] / 2 > share) || shard + layer_bytes[i] > max_bytes)) {
        begins.push_back(int(i));
        shard = 0;
      }
      shard += layer_bytes[i];
      most = std::max(most, shard);
    }
    if (most <= max_bytes || count >= int64_t(layer_bytes.size())) return begins;
  }
}

ExportReport ExportBundle(const ModelSource& model, const fs::path& out, const ExportOptions& options,
                          const Progress& progress) {
  if (options.max_shard_bytes < 1) throw Fail(ErrorKind::kBadRequest, "max-shard-mb: must be positive");
  PartialFolder folder(out, FilesOfBundle);
  ExportReport report = Exporter(model, options, progress).Run(folder.path());
  folder.Publish();
  report.bundle.path = out;
  return report;
}

}  // namespace pd
