#include "cpu/model.h"

#include <algorithm>

#include "base/error.h"
#include "cpu/arena.h"
#include "model/support.h"

namespace pd {

using cpu::CpuWeight;
using cpu::kTile;
using cpu::PackedMatrix;
using cpu::Vector;

namespace {

bool StaysInFile(const ModelSpec& spec, const WeightInfo& info) {
  return info.Is(Part::kEmbed) && !spec.tied_head;
}

const Support& Supported() {
  static const Support support = {Feature::kLayerNorm, Feature::kNormNoGain, Feature::kUngatedMlp,
                                  Feature::kScoreCap};
  return support;
}

// Tiles of one matrix, to be packed to `out`.
struct PackJob {
  const TensorView* tensor;
  std::byte* out;
  int64_t tiles;
  size_t tile_bytes;
};

void Pack(const std::vector<PackJob>& jobs, size_t total, ThreadPool& pool, const LoadProgress& progress) {
  constexpr size_t kReport = size_t(16) << 20;  // bytes between two reports
  size_t done = 0, unreported = 0;
  for (const PackJob& job : jobs) {
    const int64_t step = std::max<int64_t>(1, int64_t(kReport / job.tile_bytes));
    for (int64_t from = 0; from < job.tiles; from += step) {
      const int64_t count = std::min(step, job.tiles - from);
      pool.Split(count, 4, [&](int64_t begin, int64_t end) {
        for (int64_t t = from + begin; t < from + end; ++t)
          cpu::PackTile(*job.tensor, t, job.out + size_t(t) * job.tile_bytes);
      });
      done += size_t(count) * job.tile_bytes;
      unreported += size_t(count) * job.tile_bytes;
      if (progress && (unreported >= kReport || done == total)) {
        progress(done, total);
        unreported = 0;
      }
    }
  }
}

}  // namespace

std::shared_ptr<const CpuModel> LoadCpuModel(const ModelSpec& spec, const Weights<TensorView>& tensors,
                                             ThreadPool& pool, const LoadProgress& progress,
                                             std::optional<uint64_t> digest) {
  CheckSupport(spec, "cpu", Supported());
  auto model = std::make_shared<CpuModel>();
  model->spec_ = spec;
  model->id_ = {SpecDigest(spec), digest ? *digest : WeightsDigest(spec, tensors), ComputedBy("cpu")};

  size_t floats = 0;
  ForEachWeight(spec, tensors, [&](const TensorView& t, const WeightInfo& info) {
    PD_CHECK(t.shape == info.shape);
    if (t.type == DType::kF64)
      throw Fail(ErrorKind::kUnsupported, "{}: f64 weights are not supported on the CPU; convert them to f32",
                 t.name);
    if (info.shape.size() == 1)
      floats += size_t(cpu::Matrix::Stride(info.shape[0]));
    else if (!StaysInFile(spec, info))
      model->packed_bytes_ += PackedMatrix{cpu::PackedType(t.type), t.rows(), t.columns(), nullptr}.bytes();
  });
  model->pages_ = cpu::Pages(model->packed_bytes_, cpu::Pages::Size::kHuge, "weights");
  model->vectors_.resize(floats);

  std::byte* tiles = model->pages_.data();
  float* vector = model->vectors_.data();
  std::vector<PackJob> jobs;
  model->weights_ =
      MapWeights<CpuWeight>(spec, tensors, [&](const TensorView& t, const WeightInfo& info) -> CpuWeight {
        if (StaysInFile(spec, info)) return t;
        if (info.shape.size() == 1) {
          const auto size = size_t(info.shape[0]);
          t.ReadRow(0, {vector, size});
          const Vector padded(vector, size_t(cpu::Matrix::Stride(info.shape[0])));
          vector += padded.size();
          return padded;
        }
        const PackedMatrix matrix{cpu::PackedType(t.type), t.rows(), t.columns(), tiles};
        jobs.push_back({&t, tiles, matrix.tile_count(), matrix.tile_bytes()});
        tiles += matrix.bytes();
        return matrix;
      });
  Pack(jobs, model->packed_bytes_, pool, progress);
  return model;
}

CpuMemory EstimateCpuMemory(const ModelSpec& spec, const Weights<TensorView>& tensors, int max_rows) {
  CpuMemory memory;
  ForEachWeight(spec, tensors, [&](const TensorView& t, const WeightInfo& info) {
    if (info.shape.size() == 1)
      memory.weights += size_t(cpu::Matrix::Stride(info.shape[0])) * sizeof(float);
    else if (!StaysInFile(spec, info))
      memory.weights += PackedMatrix{cpu::PackedType(t.type), t.rows(), t.columns(), nullptr}.bytes();
  });
  // Forward holds at most the stream, its norm, q, k, v and the attended values, or gate and up, at a time;
  // the products' operands in 8 bits take about as much as one of them.
  int64_t widest = 0;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = AttentionOf(layer);
    widest = std::max<int64_t>({widest, 2 * a.q_width() + 2 * a.kv_width(), 2 * MlpOf(layer).hidden});
  }
  memory.activations =
      size_t(max_rows) * size_t(3 * spec.width + widest) * sizeof(float) + size_t(spec.vocab) * sizeof(float);
  return memory;
}

}  // namespace pd
