// Folders that MLX quantised: what they hold, and what is wrong with those that are not whole.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/files.h"
#include "base/json.h"
#include "formats/model_source.h"
#include "formats/safetensors.h"
#include "tests/expect_error.h"
#include "tests/formats/writers.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::filesystem::path kMixed = PD_TEST_DATA "/models/llama-base-mlx-mixed";
const std::string kDown = "model.layers.0.mlp.down_proj";

struct Folder {
  Json config;
  SafetensorsSpec weights;

  SafetensorsSpec::Tensor& Tensor(const std::string& name) {
    for (auto& tensor : weights.tensors)
      if (tensor.name == name) return tensor;
    throw Fail(ErrorKind::kNotFound, "{}: not in the folder", name);
  }
  void Remove(const std::string& name) {
    std::erase_if(weights.tensors, [&](const auto& tensor) { return tensor.name == name; });
  }
};

Folder ReadMixed() {
  Folder folder;
  folder.config = ParseJson(ReadTextFile(kMixed / "config.json"), "config.json");
  const auto file = SafetensorsFile::Open(kMixed / "model.safetensors");
  for (const SafetensorsTensor& t : file->tensors())
    folder.weights.tensors.push_back(
        {t.name, t.dtype, t.shape, {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}});
  return folder;
}

TEST(MlxFolder, EachMatrixHasItsFormat) {
  const ModelSource source = OpenModel(kMixed);
  const auto& attention = AttentionOf(source.tensors.layers[0]);
  const auto& mlp = MlpOf(source.tensors.layers[0]);
  const auto expect = [](const TensorView& view, DType type, int group) {
    EXPECT_EQ(view.type, type) << view.name;
    ASSERT_TRUE(view.affine) << view.name;
    EXPECT_EQ(view.affine->group, group) << view.name;
    EXPECT_EQ(view.affine->type, DType::kF16) << view.name;
  };
  expect(source.tensors.embed, DType::kAffine8, 64);
  expect(attention.q.weight, DType::kAffine3, 64);
  expect(attention.k->weight, DType::kAffine5, 32);
  expect(attention.v->weight, DType::kAffine6, 64);
  expect(attention.o.weight, DType::kAffine2, 64);
  expect(mlp.down.weight, DType::kAffine4, 32);
  EXPECT_EQ(mlp.down.weight.stored_bytes(), 64u * 96 / 2 + 2 * 2 * 64 * 3);
  EXPECT_EQ(AttentionOf(source.tensors.layers[1]).o.weight.type, DType::kF16);
}

struct Bad {
  const char* name;
  ErrorKind kind;
  std::vector<std::string_view> words;
  std::function<void(Folder&)> bend;
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

class MlxFolderBadInputs : public ::testing::TestWithParam<Bad> {};

TEST_P(MlxFolderBadInputs, AreOneLineAndAKind) {
  Folder folder = ReadMixed();
  GetParam().bend(folder);
  const TempFolder written;
  written.Write("config.json", folder.config.dump());
  written.Write("model.safetensors", folder.weights.Bytes());
  ExpectError(GetParam().kind, GetParam().words, [&] { OpenModel(written.path()); });
}

std::vector<Bad> AllBad() {
  constexpr ErrorKind kCorrupt = ErrorKind::kCorruptFile, kUnsupported = ErrorKind::kUnsupported;
  const auto set = [](const char* key, const Json& value) {
    return [key, value](Folder& f) {
      f.config["quantization"][key] = value;
      f.config["quantization_config"] = f.config["quantization"];
    };
  };
  return {{"Mode", kUnsupported, {"mode", "mxfp4", "affine"}, set("mode", "mxfp4")},
          {"Bits", kUnsupported, {"bits", "7"}, set("bits", 7)},
          {"Group", kUnsupported, {"group_size", "16"}, set("group_size", 16)},
          {"UnknownKey", kUnsupported, {"global_scale"}, set("global_scale", 1)},
          {"OtherScheme",
           kUnsupported,
           {"quantization_config"},
           [](Folder& f) { f.config["quantization_config"] = {{"quant_method", "gptq"}}; }},
          {"NoWordOfIt",
           kUnsupported,
           {"U32"},
           [](Folder& f) { f.config.erase("quantization"), f.config.erase("quantization_config"); }},
          {"OtherBitsThanConfig",
           kCorrupt,
           {kDown, "shape"},
           set(kDown.c_str(), {{"group_size", 32}, {"bits", 8}})},
          {"OtherGroupThanConfig",
           kCorrupt,
           {"model.embed_tokens.scales", "shape"},
           set("model.embed_tokens", {{"group_size", 32}, {"bits", 8}})},
          {"PlainByConfig", kCorrupt, {kDown, "not quantised"}, set(kDown.c_str(), false)},
          {"GroupThatDoesNotDivide",
           kCorrupt,
           {kDown, "128"},
           set(kDown.c_str(), {{"group_size", 128}, {"bits", 4}})},
          {"NoScales", kCorrupt, {kDown}, [](Folder& f) { f.Remove(kDown + ".scales"); }},
          {"NoBiases",
           kCorrupt,
           {"model.layers.0.mlp.down_proj.biases", "missing"},
           [](Folder& f) { f.Remove(kDown + ".biases"); }},
          {"ScalesOfAnotherType",
           kCorrupt,
           {kDown, "bf16", "f16"},
           [](Folder& f) { f.Tensor(kDown + ".scales").dtype = "BF16"; }},
          {"CodesOfAnotherType",
           kCorrupt,
           {kDown, "f32"},
           [](Folder& f) { f.Tensor(kDown + ".weight").dtype = "F32"; }},
          {"ScalesOfAGain", kCorrupt, {"model.norm"}, [](Folder& f) {
             f.weights.tensors.push_back({"model.norm.scales", "F16", {1, 2}, std::string(4, 0)});
           }}};
}

INSTANTIATE_TEST_SUITE_P(Each, MlxFolderBadInputs, ::testing::ValuesIn(AllBad()),
                         [](const auto& bad) { return bad.param.name; });

}  // namespace
}  // namespace pd::test
