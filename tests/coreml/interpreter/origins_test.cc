// A prefill program of the other kind, made with coremltools: token ids in; raw keys and values of all layers
// out, packed in one tensor each. The decode device imports and rotates them and goes on as if it had read
// the prompt itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "base/json.h"
#include "coreml/interpreter/interpreter.h"
#include "cpu/cpu_device.h"
#include "kv/segment.h"
#include "reference/reference_ops.h"
#include "tests/coreml/example.h"
#include "tests/coreml/python.h"
#include "tests/coreml/sources.h"
#include "tests/device_checks.h"
#include "tests/error_table.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

constexpr int kTokens = 128;  // of the program

ModelSpec LlamaSpec() {
  ModelSpec spec = test::MixedSpec();
  LayerSpec layer = spec.layers[0];
  AttentionOf(layer).q_bias = AttentionOf(layer).kv_bias = AttentionOf(layer).out_bias = false;
  MlpOf(layer).bias = false;
  spec.layers = {layer, layer, layer};
  spec.embed_scale = 1;
  spec.logit_cap.reset();
  return spec;
}

// `model` as origins.py wants it.
std::string Describe(ModelSource& model) {
  const AttentionSpec& a = AttentionOf(model.spec.layers[0]);
  SortedJson json = {{"heads", a.heads},
                     {"kv_heads", a.kv_heads},
                     {"head_dim", a.head_dim},
                     {"theta", a.rope->theta},
                     {"eps", model.spec.layers[0].pre_mixer->eps},
                     {"tokens", kTokens}};
  ForEachWeight(model.spec, model.tensors, [&](TensorView& t, const WeightInfo& info) {
    json["tensors"][info.Name()] = {{"shape", info.shape}, {"values", t.ReadAll()}};
  });
  return json.dump();
}

TokenId Largest(const std::vector<float>& logits) {
  return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Logits after each of the last tokens of a text, whose first `known` tokens the slot holds.
std::vector<std::vector<float>> LogitsAlong(DecodeDevice& device, SlotId slot, std::span<const TokenId> ids,
                                            int known, int prompt) {
  std::vector<std::vector<float>> all;
  for (int end = prompt; end <= int(ids.size()); known = end++)
    all.push_back(test::Feed(device, slot, ids, known, end, kTokens));
  return all;
}

// Greedy text, teacher-forced: the same choice at every position, or one that rounding can change.
void ExpectSameText(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want) {
  const double bound = test::LogitError("ane_reference");
  int differ = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_LE(test::RelativeError(got[i], want[i]), bound) << "position " << i;
    const auto mine = size_t(Largest(got[i])), right = size_t(Largest(want[i]));
    if (mine == right) continue;
    ++differ;
    double norm = 0;
    for (float v : want[i]) norm += double(v) * double(v);
    EXPECT_LE(want[i][right] - want[i][mine], 2 * bound * std::sqrt(norm)) << "position " << i;
  }
  EXPECT_LE(differ * 50, int(want.size()));
}

TEST(Origins, PackedRawKeysGiveTheSameText) {
  ModelSource model = test::RandomSource(LlamaSpec());
  const test::TempFolder folder;
  WriteFileAtomically(folder / "model.json", Describe(model));
  const auto path = folder / "prefill.mlpackage";
  const test::Ran ran = test::RunPython("tests/coreml/interpreter/origins.py",
                                        {(folder / "model.json").string(), path.string()});
  ASSERT_EQ(ran.status, 0) << ran.output;

  const auto pool = std::make_shared<ThreadPool>(2);
  Interpreter interpreter(ReadPackage(path), pool);
  const auto cpu = OpenCpuDevice(LoadCpuModel(model.spec, model.tensors, *pool), pool);
  const auto reference = OpenReferenceDevice(LoadReferenceModel(model.spec, model.tensors));
  ASSERT_EQ(interpreter.Inputs("main").size(), 1u);
  for (int length : {1, 2, 37, kTokens}) {
    const std::vector<TokenId> prompt = test::SomeTokens(length + 1, model.spec.vocab);
    std::vector<int32_t> ids(kTokens, 0);  // what pads it stays out of the segment
    std::copy_n(prompt.begin(), length, ids.begin());
    const mil::NamedType& input = interpreter.Inputs("main").front();
    const OutputTensors outputs = interpreter.Run(
        "main", {{input.name, {input.type, {}, reinterpret_cast<const std::byte*>(ids.data())}}});
    const AttentionSpec& a = AttentionOf(model.spec.layers[0]);
    const mil::Dims shape = {1, int64_t(model.spec.layers.size()) * kTokens, a.kv_heads, a.head_dim};
    ASSERT_EQ(outputs.at("keys").type.shape, shape);
    const DType dtype = outputs.at("keys").type.dtype == mil::DataType::kF16 ? DType::kF16 : DType::kF32;

    for (DecodeDevice* device : {cpu.get(), reference.get()}) {
      SCOPED_TRACE(fmt::format("{} tokens, decoded by {}", length, device->Info().name));
      const SlotId whole = device->Open(length + 65, {});
      std::vector<TokenId> text = prompt;
      for (int i = 0; i < 49; ++i)
        text.push_back(Largest(
            test::Feed(*device, whole, text, i == 0 ? 0 : int(text.size()) - 1, int(text.size()), kTokens)));
      device->Truncate(whole, 0);
      const auto want = LogitsAlong(*device, whole, text, 0, length + 1);
      const KvIdentity id = device->Export(whole, 0, 1).id;
      KvSegment segment{.id = id, .key_form = KeyForm::kRaw, .count = length};
      const size_t layer = size_t(kTokens) * RowBytes(dtype, a.kv_width());  // with its padding
      for (size_t i = 0; i < model.spec.layers.size(); ++i)
        segment.layers.push_back(KvLayerView{.k = outputs.at("keys").bytes->data() + i * layer,
                                             .v = outputs.at("values").bytes->data() + i * layer,
                                             .dtype = dtype,
                                             .head_stride = a.head_dim,
                                             .token_stride = a.kv_width()});
      segment.owner = outputs.at("keys").bytes;
      const SlotId imported = device->Open(length + 65, {});
      device->Import(imported, segment);
      ExpectSameText(LogitsAlong(*device, imported, text, length, length + 1), want);
      device->Close(whole), device->Close(imported);
    }
  }
}

}  // namespace
}  // namespace pd
