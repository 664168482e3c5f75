#include "formats/model_source.h"
#include "base/json.h"

#include "base/files.h"
#include "tests/expect_error.h"
#include "tests/formats/tiny_checkpoints.h"

namespace pd::test {
namespace {

struct FamilyCase {
  const char* name;
  TinyCheckpoint (*make)();
};
void PrintTo(const FamilyCase& family, std::ostream* out) { *out << family.name; }

class EachFamily : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(EachFamily, GgufAndFolderAreTheSameModel) {
  const TinyCheckpoint model = GetParam().make();
  const TempFolder folder;
  WriteFolder(model, folder);
  ModelSource from_folder = OpenModel(folder.path());
  ModelSource from_gguf = OpenModel(folder.Write("model.gguf", AsGguf(model).Bytes()));
  EXPECT_EQ(from_folder.family, from_gguf.family);
  EXPECT_EQ(from_folder.gguf, nullptr);
  ASSERT_NE(from_gguf.gguf, nullptr);
  EXPECT_EQ(from_gguf.gguf->Get<std::string>("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(ToJson(from_folder.spec).dump(1), ToJson(from_gguf.spec).dump(1));

  // Gemma's folders hold gains without the one that its GGUF files have added.
  std::vector<std::vector<float>> expected;
  ForEachWeight(from_folder.spec, from_folder.tensors, [&](TensorView& view, const WeightInfo& info) {
    std::vector<float> values = model.tensors.at(view.name).values;
    if (info.role == Role::kGain)
      for (float& value : values) value += float(model.gain_offset);
    EXPECT_EQ(view.ReadAll(), values) << info.Name();
    expected.push_back(std::move(values));
  });
  size_t next = 0;
  ForEachWeight(from_gguf.spec, from_gguf.tensors, [&](TensorView& view, const WeightInfo& info) {
    EXPECT_EQ(view.ReadAll(), expected[next++]) << info.Name();
  });
  EXPECT_EQ(next, model.tensors.size());
}

TEST_P(EachFamily, EveryTensorIsNeededAndNoOtherIsTaken) {
  const TinyCheckpoint model = GetParam().make();
  const TempFolder folder;
  WriteFolder(model, folder);
  for (const auto& [name, tensor] : model.tensors) {
    SCOPED_TRACE(name);
    SafetensorsSpec without = AsSafetensors(model);
    std::erase_if(without.tensors, [&](const auto& t) { return t.name == name; });
    folder.Write("model.safetensors", without.Bytes());
    ExpectError(ErrorKind::kCorruptFile, {name, "missing"}, [&] { OpenModel(folder.path()); });

    SafetensorsSpec bent = AsSafetensors(model);
    for (auto& t : bent.tensors)
      if (t.name == name) t.shape.push_back(1);
    folder.Write("model.safetensors", bent.Bytes());
    ExpectError(ErrorKind::kCorruptFile, {name, "shape"}, [&] { OpenModel(folder.path()); });
  }
  SafetensorsSpec more = AsSafetensors(model);
  more.tensors.push_back({"model.layers.0.mystery.weight", "F32", {1}, std::string(4, 0)});
  folder.Write("model.safetensors", more.Bytes());
  ExpectError(ErrorKind::kUnsupported, {"model.layers.0.mystery.weight", "1 tensor"},
              [&] { OpenModel(folder.path()); });

  GgufSpec gguf = AsGguf(model);
  gguf.tensors.push_back({"blk.1.mystery.weight", {1}, kTensorF32, std::string(4, 0)});
  const auto path = folder.Write("more.gguf", gguf.Bytes());
  ExpectError(ErrorKind::kUnsupported, {"blk.1.mystery.weight"}, [&] { OpenModel(path); });
}

INSTANTIATE_TEST_SUITE_P(Each, EachFamily,
                         ::testing::Values(FamilyCase{"Llama", TinyLlama}, FamilyCase{"Qwen2", TinyQwen2},
                                           FamilyCase{"Qwen3", TinyQwen3}, FamilyCase{"Gemma3", TinyGemma3}),
                         [](const auto& family) { return family.param.name; });

// The model's tensors over two shards with an index.
Json WriteShards(const TinyCheckpoint& model, const TempFolder& folder) {
  folder.Write("config.json", model.config.dump());
  const SafetensorsSpec whole = AsSafetensors(model);
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  for (int shard : {0, 1}) {
    const std::string name = fmt::format("model-0000{}-of-00002.safetensors", shard + 1);
    SafetensorsSpec part;
    for (size_t i = size_t(shard); i < whole.tensors.size(); i += 2) {
      part.tensors.push_back(whole.tensors[i]);
      index["weight_map"][whole.tensors[i].name] = name;
    }
    folder.Write(name, part.Bytes());
  }
  folder.Write("model.safetensors.index.json", index.dump());
  return index;
}

TEST(Folder, ShardsAreOneModel) {
  const TinyCheckpoint model = TinyLlama();
  const TempFolder folder;
  WriteShards(model, folder);
  ModelSource source = OpenModel(folder.path() / "config.json");
  EXPECT_EQ(source.path, folder.path() / "config.json");
  ForEachWeight(source.spec, source.tensors, [&](TensorView& view, const WeightInfo&) {
    EXPECT_EQ(view.ReadAll(), model.tensors.at(view.name).values);
  });
}

TEST(Folder, NumberedShardsNeedNoIndex) {
  const TinyCheckpoint model = TinyLlama();
  const TempFolder folder;
  WriteShards(model, folder);
  std::filesystem::remove(folder / "model.safetensors.index.json");
  ModelSource source = OpenModel(folder.path());
  EXPECT_EQ(source.tensors.embed.ReadAll(), model.tensors.at("model.embed_tokens.weight").values);
  std::filesystem::copy(folder / "model-00002-of-00002.safetensors",
                        folder / "model-00003-of-00003.safetensors");
  ExpectError(ErrorKind::kCorruptFile, {"model-00003-of-00003.safetensors", "not clear"},
              [&] { OpenModel(folder.path()); });
  std::filesystem::remove(folder / "model-00003-of-00003.safetensors");
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  ExpectError(ErrorKind::kNotFound, {"model-00002-of-00002.safetensors is missing"},
              [&] { OpenModel(folder.path()); });
}

TEST(Folder, RemarksInConfigJsonAreNoMathematics) {
  const TinyCheckpoint model = TinyQwen3();
  const TempFolder folder;
  WriteFolder(model, folder);
  const ModelSpec plain = OpenModel(folder.path()).spec;
  Json config = model.config;
  config.update({{"pad_token", "<pad>"},
                 {"license", "apache-2.0"},
                 {"model_max_length", 4096},
                 {"padding_side", "left"},
                 {"mystery_that_is_null", nullptr}});
  folder.Write("config.json", config.dump());
  EXPECT_EQ(OpenModel(folder.path()).spec, plain);
}

TEST(Folder, ConfigJsonAsPythonReadsIt) {
  const TinyCheckpoint model = TinyQwen3();
  const TempFolder folder;
  WriteFolder(model, folder);
  const ModelSpec plain = OpenModel(folder.path()).spec;
  const std::string whole = model.config.dump(), rest = whole.substr(1);
  folder.Write("config.json", R"({"license": NaN, "model_max_length": 1e400, "hidden_size": 7, )" + rest);
  EXPECT_EQ(OpenModel(folder.path()).spec, plain);
  folder.Write("config.json", whole.substr(0, whole.size() - 1) + R"(, "rms_norm_eps": Infinity})");
  ExpectError(ErrorKind::kCorruptFile, {"rms_norm_eps", "Infinity"}, [&] { OpenModel(folder.path()); });
  folder.Write("config.json", model.config.dump() + std::string("\0garbage", 8));
  ExpectError(ErrorKind::kCorruptFile, {"config.json", "NUL"}, [&] { OpenModel(folder.path()); });
}

TEST(Folder, ViewsOutliveTheSource) {
  const TinyCheckpoint model = TinyQwen2();
  const TempFolder folder;
  WriteFolder(model, folder);
  const TensorView embed = OpenModel(folder.path()).tensors.embed;
  EXPECT_EQ(embed.ReadAll(), model.tensors.at("model.embed_tokens.weight").values);
}

TEST(Folder, HalfPrecision) {
  TinyCheckpoint model = TinyQwen3();
  const TempFolder folder;
  folder.Write("config.json", model.config.dump());
  SafetensorsSpec file;
  for (auto& [name, tensor] : model.tensors) {
    const bool bfloat = name.find("norm") != std::string::npos;
    std::string data;
    for (float& value : tensor.values) {
      const uint16_t bits = bfloat ? ToBF16(value).bits : ToF16(value).bits;
      value = bfloat ? ToFloat(BF16{bits}) : ToFloat(F16{bits});
      data += Raw(bits);
    }
    file.tensors.push_back({name, bfloat ? "BF16" : "F16", tensor.shape, data});
  }
  folder.Write("model.safetensors", file.Bytes());
  ModelSource source = OpenModel(folder.path());
  ForEachWeight(source.spec, source.tensors, [&](TensorView& view, const WeightInfo&) {
    EXPECT_EQ(view.ReadAll(), model.tensors.at(view.name).values) << view.name;
  });
}

TEST(Folder, HarmlessTensorsAreSkippedByName) {
  const TinyCheckpoint model = TinyQwen2();
  const TempFolder folder;
  folder.Write("config.json", model.config.dump());
  SafetensorsSpec file = AsSafetensors(model);
  file.tensors.push_back({"model.layers.1.self_attn.rotary_emb.inv_freq", "F64", {4}, std::string(32, 0)});
  SafetensorsSpec::Tensor head = *std::find_if(file.tensors.begin(), file.tensors.end(), [](const auto& t) {
    return t.name == "model.embed_tokens.weight";
  });
  head.name = "lm_head.weight";
  file.tensors.push_back(head);
  folder.Write("model.safetensors", file.Bytes());
  EXPECT_TRUE(OpenModel(folder.path()).spec.tied_head);
  file.tensors.back().data[0] ^= 1;
  folder.Write("model.safetensors", file.Bytes());
  ExpectError(ErrorKind::kCorruptFile, {"lm_head.weight", "tie_word_embeddings"},
              [&] { OpenModel(folder.path()); });
}

TEST(Folder, LanguageModelOfAGemmaThatSees) {
  const TinyCheckpoint model = TinyGemma3();
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    const TempFolder folder;
    folder.Write("config.json", Json{{"model_type", "gemma3"},
                                     {"text_config", model.config},
                                     {"vision_config", {{"model_type", "siglip_vision_model"}}},
                                     {"image_token_index", 39}}
                                    .dump());
    SafetensorsSpec file = AsSafetensors(model);
    for (auto& t : file.tensors) t.name = prefix + t.name.substr(std::string("model.").size());
    file.tensors.push_back({"vision_tower.vision_model.post_layernorm.weight", "I8", {3}, "abc"});
    file.tensors.push_back({"multi_modal_projector.mm_soft_emb_norm.weight", "F32", {1}, "abcd"});
    folder.Write("model.safetensors", file.Bytes());
    ModelSource source = OpenModel(folder.path());
    EXPECT_EQ(source.tensors.embed.ReadAll(), model.tensors.at("model.embed_tokens.weight").values);
    EXPECT_EQ(source.spec.layers.size(), 2u);
  }
}

struct BadFolder {
  const char* name;
  ErrorKind kind;
  std::vector<const char*> named;
  void (*write)(const TinyCheckpoint&, const TempFolder&);
};
void PrintTo(const BadFolder& bad, std::ostream* out) { *out << bad.name; }

class BadFolders : public ::testing::TestWithParam<BadFolder> {};

TEST_P(BadFolders, AreRefused) {
  const TempFolder folder;
  GetParam().write(TinyLlama(), folder);
  for (const char* named : GetParam().named)
    ExpectError(GetParam().kind, {folder.path().string(), named}, [&] { OpenModel(folder.path()); });
}

using Model = TinyCheckpoint;
using Folder = TempFolder;
constexpr const char* kShard = "model-00001-of-00002.safetensors";

void Reconfigure(const Model& model, const Folder& folder, const char* key, Json value) {
  WriteFolder(model, folder);
  Json config = model.config;
  config[key] = std::move(value);
  folder.Write("config.json", config.dump());
}

void Reindex(const Model& model, const Folder& folder, const std::function<void(Json&)>& bend) {
  Json index = WriteShards(model, folder);
  bend(index["weight_map"]);
  folder.Write("model.safetensors.index.json", index.dump());
}

constexpr ErrorKind kCorrupt = ErrorKind::kCorruptFile, kUnsupported = ErrorKind::kUnsupported,
                    kNotFound = ErrorKind::kNotFound;

std::vector<BadFolder> AllBadFolders() {
  return {{"NoConfig",
           kNotFound,
           {"config.json", "give a folder"},
           [](const Model&, const Folder& f) { f.Write("README.md", "#"); }},
          {"ConfigNoJson",
           kCorrupt,
           {"config.json", "line 1"},
           [](const Model&, const Folder& f) { f.Write("config.json", "{"); }},
          {"ConfigNoObject",
           kCorrupt,
           {"config.json", "object"},
           [](const Model&, const Folder& f) { f.Write("config.json", "[]"); }},
          {"ConfigHuge",
           kCorrupt,
           {"config.json", "more than"},
           [](const Model&, const Folder& f) { f.Write("config.json", std::string(300000, ' ')); }},
          {"ConfigUnknownKey",
           kUnsupported,
           {"config.json", "mystery_scale", "newer version"},
           [](const Model& m, const Folder& f) { Reconfigure(m, f, "mystery_scale", 2); }},
          {"ModelTypeUnknown",
           kUnsupported,
           {"model_type", "mamba", "known are llama"},
           [](const Model& m, const Folder& f) { Reconfigure(m, f, "model_type", "mamba"); }},
          {"LayersTooMany",
           kCorrupt,
           {"num_hidden_layers", "4096"},
           [](const Model& m, const Folder& f) { Reconfigure(m, f, "num_hidden_layers", 2000000000); }},
          {"HeadsNoMultiple",
           kCorrupt,
           {"multiple of the number of KV heads"},
           [](const Model& m, const Folder& f) { Reconfigure(m, f, "num_key_value_heads", 3); }},
          {"Quantised",
           kUnsupported,
           {"quantization_config", "GGUF"},
           [](const Model& m, const Folder& f) {
             Reconfigure(m, f, "quantization_config", {{"quant_method", "gptq"}});
           }},
          {"OwnCode",
           kUnsupported,
           {"auto_map", "never run"},
           [](const Model& m, const Folder& f) { Reconfigure(m, f, "auto_map", {{"AutoModel", "x.py"}}); }},
          {"Adapter",
           kUnsupported,
           {"adapter_config.json", "merge"},
           [](const Model& m, const Folder& f) {
             WriteFolder(m, f);
             f.Write("adapter_config.json", "{}");
           }},
          {"NoWeights",
           kNotFound,
           {"model.safetensors", "download the weights"},
           [](const Model& m, const Folder& f) { f.Write("config.json", m.config.dump()); }},
          {"PickleOnly",
           kUnsupported,
           {"pytorch_model.bin", "safetensors or GGUF"},
           [](const Model& m, const Folder& f) {
             f.Write("config.json", m.config.dump());
             f.Write("pytorch_model.bin", "\x80\x02");
           }},
          {"WeightsEmpty",
           kCorrupt,
           {"model.safetensors", "too few"},
           [](const Model& m, const Folder& f) {
             WriteFolder(m, f);
             f.Write("model.safetensors", "");
           }},
          {"TypeOfAWeight",
           kUnsupported,
           {"\"model.norm.weight\"", "I32", "F32, F16 and BF16"},
           [](const Model& m, const Folder& f) {
             WriteFolder(m, f);
             SafetensorsSpec file = AsSafetensors(m);
             for (auto& tensor : file.tensors)
               if (tensor.name == "model.norm.weight") tensor.dtype = "I32";
             f.Write("model.safetensors", file.Bytes());
           }},
          {"ShardMissing",
           kNotFound,
           {kShard, "download"},
           [](const Model& m, const Folder& f) {
             WriteShards(m, f);
             std::filesystem::remove(f.path() / kShard);
           }},
          {"ShardCutShort",
           kCorrupt,
           {kShard, "cut short"},
           [](const Model& m, const Folder& f) {
             WriteShards(m, f);
             const std::string bytes = ReadTextFile(f.path() / kShard);
             f.Write(kShard, bytes.substr(0, bytes.size() - 4));
           }},
          {"ShardLacksATensor",
           kCorrupt,
           {kShard, "\"model.mystery\"", "lacks"},
           [](const Model& m, const Folder& f) {
             Reindex(m, f, [](Json& map) { map["model.mystery"] = kShard; });
           }},
          {"IndexOfAnotherCheckpoint",
           kCorrupt,
           {"index", "another checkpoint"},
           [](const Model& m, const Folder& f) {
             Reindex(m, f, [](Json& map) { map.erase("lm_head.weight"); });
           }},
          {"TensorInTwoShards",
           kCorrupt,
           {"\"model.embed_tokens.weight\"", "not where"},
           [](const Model& m, const Folder& f) {
             WriteShards(m, f);
             f.Write(kShard, AsSafetensors(m).Bytes());
           }},
          {"StraySingleFile",
           kCorrupt,
           {"model.safetensors lies beside", "remove"},
           [](const Model& m, const Folder& f) {
             WriteShards(m, f);
             f.Write("model.safetensors", AsSafetensors(m).Bytes());
           }},
          {"StrayShard",
           kCorrupt,
           {"model-00001-of-00003.safetensors", "remove"},
           [](const Model& m, const Folder& f) {
             WriteFolder(m, f);
             f.Write("model-00001-of-00003.safetensors", AsSafetensors(m).Bytes());
           }},
          {"IndexOutsideTheFolder",
           kCorrupt,
           {"../elsewhere.safetensors"},
           [](const Model& m, const Folder& f) {
             Reindex(m, f, [](Json& map) { map["lm_head.weight"] = "../elsewhere.safetensors"; });
           }},
          {"IndexNoMap",
           kCorrupt,
           {"weight_map"},
           [](const Model& m, const Folder& f) {
             WriteShards(m, f);
             f.Write("model.safetensors.index.json", "{}");
           }},
          {"IndexEmpty", kCorrupt, {"weight_map", "names no tensor"}, [](const Model& m, const Folder& f) {
             f.Write("config.json", m.config.dump());
             f.Write("model.safetensors.index.json", "{\"weight_map\": {}}");
           }}};
}

INSTANTIATE_TEST_SUITE_P(Each, BadFolders, ::testing::ValuesIn(AllBadFolders()),
                         [](const auto& bad) { return bad.param.name; });

TEST(NotAModel, OneLineWithTheRemedy) {
  const TempFolder folder;
  const auto expect = [&](ErrorKind kind, const char* name, std::string_view bytes, const char* why) {
    const auto path = folder.Write(name, bytes);
    ExpectError(kind, {path.string(), why, "config.json"}, [&] { OpenModel(path); });
  };
  expect(kCorrupt, "README.md", "# A model\n", "not a model");
  expect(kCorrupt, "empty", "", "empty");
  expect(kCorrupt, "short", "GG", "not a model");
  expect(kUnsupported, "pytorch_model.bin", "\x80\x02}q", "pickle");
  expect(kUnsupported, "model.pt", "PK\x03\x04....", "pickle");
  expect(kUnsupported, "model.safetensors", "\x08...", "weights alone");
  ExpectError(kNotFound, {"/no/such/model", "no such file or folder"}, [] { OpenModel("/no/such/model"); });
  ExpectError(kNotFound, {"no such file or folder"}, [] { OpenModel(""); });
  ExpectError(kCorrupt, {"not a GGUF file"}, [&] { OpenModel(folder.Write("empty.gguf", "")); });
  // A GGUF file is known by its first bytes, whatever its name.
  EXPECT_EQ(OpenModel(folder.Write("blob", AsGguf(TinyQwen2()).Bytes())).family, "qwen");
}

}  // namespace
}  // namespace pd::test
