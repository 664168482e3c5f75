#include "tests/device/test_devices.h"

#include <numeric>

#include "cpu/cpu_device.h"
#include "mlx/mlx_device.h"
#include "reference/reference_ops.h"
#include "tests/error_table.h"

namespace pd::test {
namespace {

auto LoadReference(TinyModel& model) {
  auto loaded = LoadReferenceModel(model.spec, model.tensors);
  return [loaded] { return OpenReferenceDevice(loaded); };
}

auto LoadCpu(TinyModel& model) {
  const auto pool = std::make_shared<ThreadPool>(2);
  auto loaded = LoadCpuModel(model.spec, model.tensors, *pool);
  return [loaded, pool] { return OpenCpuDevice(loaded, pool); };
}

std::function<std::unique_ptr<DecodeDevice>()> LoadMlx(TinyModel& model, DType activations) {
  MlxOptions options;
  options.activations = activations;
  auto loaded = LoadMlxModel(model.spec, model.tensors, options);
  return [loaded] { return OpenMlxDevice(loaded); };
}

// Remembers the keys that Forward shows before it rotates them.
class RawRecorder : public ReferenceOps {
 public:
  using ReferenceOps::ReferenceOps;
  void RawKeys(int layer, const Tensor& k) {
    keys.resize(size_t(layer) + 1);
    keys[size_t(layer)].assign(k.values.begin(), k.values.end());
  }
  std::vector<std::vector<float>> keys;  // [layers][tokens, K*D]
};

}  // namespace

RawPrefill RunRawPrefill(TinyModel& model, std::span<const TokenId> ids) {
  RawRecorder ops(LoadReferenceModel(model.spec, model.tensors));
  const SlotId slot = ops.OpenSlot(int(ids.size()), {});
  std::vector<int32_t> pos(ids.size());
  std::iota(pos.begin(), pos.end(), 0);
  const std::vector<SlotId> slots(ids.size(), slot);
  Forward(ops, model.spec, ops.ModelWeights(), {ids, pos, slots, {}});
  struct Memory {
    std::vector<std::vector<float>> keys;
    KvSegment values;
  };
  auto memory = std::make_shared<Memory>(Memory{ops.keys, ops.ExportRows(slot, 0, int(ids.size()))});
  RawPrefill raw{memory->values};
  raw.segment.id = ops.Identity();
  raw.segment.key_form = KeyForm::kRaw;
  for (size_t i = 0; i < memory->keys.size(); ++i)
    raw.segment.kv(i).k = reinterpret_cast<const std::byte*>(memory->keys[i].data());
  raw.segment.owner = memory;
  return raw;
}

// The layout of one-shot prefill programs: k and v of shape (1, layers * tokens, kv_heads, head_dim). Every
// layer has the same heads.
KvSegment PackAsOneTensor(const ModelSpec& spec, const KvSegment& segment) {
  auto memory = std::make_shared<std::array<std::vector<float>, 2>>();
  const AttentionSpec& a = AttentionOf(spec.layers[0]);
  std::vector<float> head(size_t(a.head_dim));
  for (size_t i = 0; i < segment.layers.size(); ++i)
    for (int t = 0; t < segment.count; ++t)
      for (int h = 0; h < a.kv_heads; ++h)
        for (bool value : {false, true}) {
          const KvLayerView& view = segment.kv(i);
          ReadHead(view, value ? view.v : view.k, h, t, head);
          (*memory)[value].insert((*memory)[value].end(), head.begin(), head.end());
        }
  KvSegment packed = segment;
  const auto layer = size_t(segment.count) * size_t(a.kv_width());
  for (size_t i = 0; i < packed.layers.size(); ++i)
    packed.layers[i] = KvLayerView{reinterpret_cast<const std::byte*>(&(*memory)[0][i * layer]),
                                   reinterpret_cast<const std::byte*>(&(*memory)[1][i * layer]),
                                   DType::kF32,
                                   a.head_dim,
                                   a.kv_width(),
                                   1};
  packed.owner = memory;
  return packed;
}

double LogitErrorOf(const TestDevice& device, TinyModel& model) {
  for (const ErrorRow& row : kErrorTable)  // what it computes with does not depend on the weights
    if (row.name == device.backend) return row.logits;
  bool quantised = false, narrow = false;
  ForEachWeight(model.spec, model.tensors, [&](const TensorView& t, const WeightInfo&) {
    quantised |= IsQuantised(t.type);
    narrow |= t.type != DType::kF32;
  });
  return LogitError(device.backend + (quantised ? "_quantised" : narrow ? "_16bit" : "_f32"));
}

std::vector<TestDevice> AllDevices() {
  std::vector<TestDevice> devices = {{"reference", "reference", false, LoadReference},
                                     {"cpu", "cpu", true, LoadCpu}};
  if (GetMlxStatus().usable) {
    devices.push_back({"mlx", "mlx_f32", false, [](TinyModel& m) { return LoadMlx(m, DType::kF32); }});
    devices.push_back({"mlx_f16", "mlx_f16", false, [](TinyModel& m) { return LoadMlx(m, DType::kF16); }});
  }
  return devices;
}

}  // namespace pd::test
