#include "mlx/mlx_device.h"

#include "base/error.h"
#include "device/local_device.h"
#include "mlx/gpu_kernels.h"
#include "mlx/mlx_backend.h"
#include "model/support.h"

namespace pd {
namespace {

// Also converts what MLX throws while a step is built to Error. Nothing has run by then: slots keep their
// contents.
class MlxDevice final : public DecodeDevice {
 public:
  explicit MlxDevice(LocalDevice<MlxBackend> device) : device_(std::move(device)) {}

  const DeviceInfo& Info() const override { return device_.Info(); }
  SlotId Open(int capacity, const Variant& variant) override {
    return WithMlxErrors([&] { return device_.Open(capacity, variant); });
  }
  void Close(SlotId slot) override {
    WithMlxErrors([&] { device_.Close(slot); });
  }
  int Length(SlotId slot) const override { return device_.Length(slot); }
  StepId Submit(const Step& step) override {
    return WithMlxErrors([&] { return device_.Submit(step); });
  }
  std::vector<SampledRow> Collect(StepId id) override {
    return WithMlxErrors([&] { return device_.Collect(id); });
  }
  Logits RunLogits(const Rows& rows) override {
    return WithMlxErrors([&] { return device_.RunLogits(rows); });
  }
  void Import(SlotId slot, const KvSegment& segment) override {
    WithMlxErrors([&] { device_.Import(slot, segment); });
  }
  KvSegment Export(SlotId slot, int first, int count) override {
    return WithMlxErrors([&] { return device_.Export(slot, first, count); });
  }
  int RollbackFloor(SlotId slot) const override { return device_.RollbackFloor(slot); }
  void Truncate(SlotId slot, int count) override { device_.Truncate(slot, count); }

 private:
  LocalDevice<MlxBackend> device_;
};

// The type of the matrices, for the default activation type.
bool HasBf16(const ModelSpec& spec, const Weights<TensorView>& tensors) {
  bool found = false;
  ForEachWeight(spec, tensors, [&](const TensorView& t, const WeightInfo&) {
    found = found || (t.affine ? t.affine->type : t.type) == DType::kBF16;
  });
  return found;
}

MlxWeightOptions ResolveOptions(const ModelSpec& spec, const Weights<TensorView>& tensors,
                                const MlxOptions& options) {
  if (options.quantise_bits != 0 && options.quantise_bits != 4 && options.quantise_bits != 8)
    throw Fail(ErrorKind::kUnsupported, "mlx: quantisation to {} bits; choose 4 or 8", options.quantise_bits);
  if (options.max_rows < 1)
    throw Fail(ErrorKind::kUnsupported, "mlx: max_rows is {}; choose 1 or more", options.max_rows);
  DType type = DType::kF32;
  if (options.activations) {
    type = *options.activations;
    if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16)
      throw Fail(ErrorKind::kUnsupported, "mlx: activations of type {}; choose f32, f16 or bf16", Name(type));
  } else if (mx::default_device() == mx::Device::gpu) {
    type = HasBf16(spec, tensors) ? DType::kBF16 : DType::kF16;
  }
  return {ToMlx(type), options.quantise_bits};
}

size_t SumBytes(const ModelSpec& spec, const Weights<TensorView>& tensors, const MlxWeightOptions& options) {
  size_t bytes = 0;
  ForEachWeight(spec, tensors,
                [&](const TensorView& t, const WeightInfo& info) { bytes += BytesOf(t, info, options); });
  return bytes;
}

const Support& Supported() {
  static const Support support = {Feature::kLayerNorm, Feature::kNormNoGain, Feature::kUngatedMlp,
                                  Feature::kScoreCap};
  return support;
}

// What keys and values depend on besides the file's weights.
std::string Producer(const MlxWeightOptions& options) {
  return fmt::format("mlx {} {} q{}", MlxBackendName(), Name(FromMlx(options.activations)),
                     options.quantise_bits);
}

std::string Size(size_t bytes) {
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", double(bytes) / 1e6)
                               : fmt::format("{:.2f} GB", double(bytes) / 1e9);
}

std::vector<std::string> Describe(const MlxWeightChanges& changes, const MlxWeightOptions& options) {
  const char* type = Name(FromMlx(options.activations));
  std::vector<std::string> notes;
  for (const auto& [from, change] : changes.rounded)
    notes.push_back(fmt::format(
        "mlx: {} {} matrices keep their codes; scales are rounded to {}, relative error at most {:.1e}",
        change.matrices, Name(from), type, change.rounding));
  for (const auto& [from, change] : changes.plain)
    notes.push_back(
        fmt::format("mlx: {} {} matrices are held as {}: {}, {} in the file{}", change.matrices, Name(from),
                    type, Size(change.device_bytes), Size(change.file_bytes),
                    change.device_bytes > change.file_bytes ? "; quantising to 4 or 8 bits takes less" : ""));
  if (changes.requantised.matrices > 0)
    notes.push_back(fmt::format(
        "mlx: {} matrices are quantised to {} bits, as requested: {}, {} in the file; answers will differ",
        changes.requantised.matrices, options.quantise_bits, Size(changes.requantised.device_bytes),
        Size(changes.requantised.file_bytes)));
  return notes;
}

}  // namespace

const std::vector<std::string>& LoadNotes(const MlxModel& model) { return model.notes; }

MlxMemory EstimateMlxMemory(const ModelSpec& spec, const Weights<TensorView>& tensors,
                            const MlxOptions& options) {
  const MlxWeightOptions resolved = ResolveOptions(spec, tensors, options);
  return {SumBytes(spec, tensors, resolved), MlxCache::Format(resolved.activations),
          std::string_view(MlxBackendName()) != "cuda"};
}

std::shared_ptr<const MlxModel> LoadMlxModel(const ModelSpec& spec, const Weights<TensorView>& tensors,
                                             const MlxOptions& options,
                                             const std::function<void(size_t, size_t)>& progress,
                                             std::optional<uint64_t> digest) {
  const MlxStatus status = GetMlxStatus();
  if (!status.usable) throw Fail(ErrorKind::kUnsupported, "{}", status.problem);
  return WithMlxErrors([&]() -> std::shared_ptr<const MlxModel> {
    const MlxWeightOptions resolved = ResolveOptions(spec, tensors, options);
    CheckSupport(spec, "mlx", Supported());
    auto model = std::make_shared<MlxModel>();
    model->weight_bytes = SumBytes(spec, tensors, resolved);
    const size_t limit = mx::get_memory_limit(), used = mx::get_active_memory();
    if (model->weight_bytes + used > limit)
      throw Fail(
          ErrorKind::kOutOfMemory,
          "mlx: the weights take {} MB on top of {} MB in use, the limit is {} MB; use a smaller or more "
          "quantised model",
          model->weight_bytes >> 20, used >> 20, limit >> 20);
    model->spec = spec;
    model->id = {SpecDigest(spec), digest ? *digest : WeightsDigest(spec, tensors),
                 ComputedBy(Producer(resolved))};
    model->activations = resolved.activations;
    model->max_rows = options.max_rows;
    MlxWeightChanges changes;
    model->weights = LoadWeights(spec, tensors, resolved, &changes, progress);
    model->notes = Describe(changes, resolved);
    return model;
  });
}

std::unique_ptr<DecodeDevice> OpenMlxDevice(std::shared_ptr<const MlxModel> model) {
  DeviceInfo info;
  info.name = "mlx";
  info.physical.kind =
      mx::default_device() == mx::Device::gpu ? PhysicalDevice::Kind::kGpu : PhysicalDevice::Kind::kCpu;
  info.max_rows = model->max_rows;
  info.runs_ahead = true;
  info.weight_bytes = model->weight_bytes;
  info.even_slots = true;
  info.memory = MlxCache::Format(model->activations);
  MlxBackend backend(std::move(model), MakeKernels());
  return std::make_unique<MlxDevice>(LocalDevice<MlxBackend>(std::move(backend), std::move(info)));
}

void LeaveMlxThread() {
  try {
    mx::synchronize();
    mx::clear_streams();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): of a failed device, reported earlier
  }
}

}  // namespace pd
