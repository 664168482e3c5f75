#include "formats/hf_folder.h"

#include <fmt/ranges.h>

#include <cstdio>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "formats/claims.h"
#include "formats/mlx_quantised.h"
#include "formats/safetensors.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMaxConfig = size_t(256) << 10, kMaxIndex = size_t(32)
                                                             << 20;  // bytes; a hundred times the largest

// The weight files in use: by index, each with the tensors it must hold; without one, all it holds.
using Shards = std::map<std::string, std::set<std::string>>;

// Names of weight files that transformers would write, whether or not they are in use.
std::set<std::string> WeightFiles(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == kSingle || Matches("model-*-of-*.safetensors", name)) names.insert(name);
  }
  return names;
}

Shards ReadIndex(const fs::path& path) {
  const std::string where = path.string();
  const SortedJson index = ParseSortedPythonJson(ReadTextFile(path, kMaxIndex), where);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw Fail(ErrorKind::kCorruptFile, "{}: no \"weight_map\"; download it again", where);
  Shards shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name != fs::path(name).filename().string() || !name.ends_with(".safetensors"))
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: tensor \"{:.80}\" lies in {:.80}, which is no .safetensors file beside it", where,
                 tensor, file.dump());
    shards[name].insert(tensor);
  }
  if (shards.empty())
    throw Fail(ErrorKind::kCorruptFile, "{}: \"weight_map\" names no tensor; download it again", where);
  return shards;
}

// The numbered files of a folder without an index: all of them, or an error.
Shards NumberedShards(const fs::path& folder, const std::set<std::string>& present) {
  Shards shards;
  int count = 0;
  for (const std::string& name : present) {
    int number = 0, of = 0, length = 0;
    const bool numbered =
        std::sscanf(name.c_str(), "model-%5d-of-%5d.safetensors%n", &number, &of, &length) == 2;
    if (!numbered || size_t(length) != name.size()) continue;
    if (count != 0 && of != count)
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: {} lies beside files numbered of {}, and without {} which of them is the model is not "
                 "clear; remove the others",
                 folder.string(), name, count, kIndex);
    count = of;
    shards[name] = {};
  }
  for (int number = 1; number <= count; ++number) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
    if (!shards.contains(name))
      throw Fail(ErrorKind::kNotFound, "{}: {} is missing; download it", folder.string(), name);
  }
  return shards;
}

Shards FindShards(const fs::path& folder) {
  const std::set<std::string> present = WeightFiles(folder);
  const bool indexed = fs::exists(folder / kIndex);
  Shards shards;
  if (indexed) shards = ReadIndex(folder / kIndex);
  if (!indexed) shards = present.count(kSingle) ? Shards{{kSingle, {}}} : NumberedShards(folder, present);
  for (const auto& [name, tensors] : shards)
    if (!fs::exists(folder / name))
      throw Fail(ErrorKind::kNotFound, "{}: {} is missing, {} names it; download it", folder.string(), name,
                 kIndex);
  for (const std::string& name : present)
    if (!shards.empty() && !shards.count(name))
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: {} lies beside {} and is no part of it: which of them is the model is not clear; "
                 "remove the other",
                 folder.string(), name, indexed ? kIndex : kSingle);
  if (!shards.empty()) return shards;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (Matches("*.bin", name) || Matches("*.pt", name) || Matches("*.pth", name))
      throw Fail(
          ErrorKind::kUnsupported,
          "{}: only {} in PyTorch's pickle format, which can run code and is not read; take the model as "
          "safetensors or GGUF",
          folder.string(), name);
  }
  throw Fail(ErrorKind::kNotFound, "{}: neither {} nor {}; download the weights", folder.string(), kSingle,
             kIndex);
}

// Keys that people and tools write into config.json and that say nothing about the mathematics, whatever the
// family: what tokenizer_config.json and the model card hold too.
void IgnoreRemarks(JsonReader& config) {
  config.Ignore({"pad_token",
                 "bos_token",
                 "eos_token",
                 "unk_token",
                 "sep_token",
                 "cls_token",
                 "mask_token",
                 "additional_special_tokens",
                 "extra_special_tokens",
                 "add_bos_token",
                 "add_eos_token",
                 "model_max_length",
                 "padding_side",
                 "truncation_side",
                 "chat_template",
                 "tokenizer_file",
                 "license",
                 "license_name",
                 "license_link",
                 "language",
                 "tags",
                 "base_model",
                 "author",
                 "description",
                 "model_name",
                 "name",
                 "version",
                 "library_name",
                 "pipeline_tag",
                 "keys_to_ignore_at_inference",
                 "use_fast",
                 "bos_id",
                 "eos_id",
                 "pad_id"});
}

// `words`: whether this folder has matrices of codes, which are of the affine type of 8 bits until
// TakeMlxMatrix knows how many bits they are of.
DType ReadableType(const SafetensorsTensor& tensor, bool words, const std::string& where) {
  if (words && tensor.dtype == "U32") return DType::kAffine8;
  if (tensor.dtype == "F32") return DType::kF32;
  if (tensor.dtype == "F16") return DType::kF16;
  if (tensor.dtype == "BF16") return DType::kBF16;
  throw Fail(ErrorKind::kUnsupported,
             "{}: tensor \"{:.80}\" is {}; readable are F32, F16 and BF16: take the original model", where,
             tensor.name, tensor.dtype);
}

// The name without what this checkpoint puts in front of it.
std::string Renamed(const Family& family, const std::string& name) {
  for (const auto& [prefix, instead] : family.renamed_prefixes)
    if (name.starts_with(prefix)) return instead + name.substr(prefix.size());
  return name;
}

bool IsIgnored(const Family& family, const std::string& name) {
  for (const std::string& pattern : family.ignored_tensors)
    if (Matches(pattern, name)) return true;
  return false;
}

// Adds a shard's tensors to the claims; `expected` is what the index says of it.
void AddShard(const fs::path& path, const std::set<std::string>* expected, const Family& family, bool words,
              TensorClaims& claims) {
  const auto file = SafetensorsFile::Open(path);
  std::set<std::string> missing = expected ? *expected : std::set<std::string>();
  for (const SafetensorsTensor& tensor : file->tensors()) {
    if (expected && missing.erase(tensor.name) == 0)
      throw Fail(
          ErrorKind::kCorruptFile,
          "{}: tensor \"{:.80}\" is not where {} says; the index is of another checkpoint: download it again",
          path.string(), tensor.name, kIndex);
    const std::string name = Renamed(family, tensor.name);
    if (IsIgnored(family, name)) continue;
    claims.Add(name, {.name = tensor.name,
                      .type = ReadableType(tensor, words, path.string()),
                      .shape = tensor.shape,
                      .bytes = tensor.bytes,
                      .owner = file,
                      .mapped = file->mapped()});
  }
  if (!missing.empty())
    throw Fail(ErrorKind::kCorruptFile,
               "{}: lacks tensor \"{:.80}\", which {} places there; download both again", path.string(),
               *missing.begin(), kIndex);
}

// A head in a checkpoint whose config ties it to the embedding must be that embedding: a fine-tune may have
// parted them without saying so.
void CheckTiedHead(const ModelSource& source, TensorClaims& claims) {
  constexpr const char* kHead = "lm_head.weight";
  if (!source.spec.tied_head || !claims.Has(kHead)) return;
  const TensorView& embed = source.tensors.embed;
  const TensorView head = claims.Take(kHead, embed.shape);
  if (head.type != embed.type || std::memcmp(head.bytes.data(), embed.bytes.data(), head.bytes.size()) != 0)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: \"{}\" differs from the embedding though config.json says \"tie_word_embeddings\"; set "
               "that to false "
               "if the head is meant",
               source.path.string(), kHead);
}

}  // namespace

ModelSource OpenFolder(const fs::path& folder) {
  const fs::path config_path = folder / "config.json";
  if (!fs::exists(config_path))
    throw Fail(ErrorKind::kNotFound,
               "{}: no config.json: not a model's folder; give a folder with config.json and safetensors, or "
               "a .gguf "
               "file",
               folder.string());
  if (fs::exists(folder / "adapter_config.json"))
    throw Fail(ErrorKind::kUnsupported,
               "{}: adapter_config.json: an adapter beside the model; merge it into the weights or remove it",
               folder.string());
  const std::string where = config_path.string();
  Json json = ParsePythonJson(ReadTextFile(config_path, kMaxConfig), where);
  const auto quantisation = TakeMlxQuantisation(json, where);
  JsonReader config(json, where);
  const std::string model_type = config.String("model_type");
  const Family* family = FindFamily(model_type);
  if (!family)
    throw Fail(ErrorKind::kUnsupported, "{}: \"model_type\" is \"{:.40}\"; known are {}", where, model_type,
               fmt::join(KnownModelTypes(), ", "));
  ModelSource source;
  source.path = folder;
  source.family = family->name;
  source.spec = family->read_config(config);
  IgnoreRemarks(config);
  config.Done();
  CheckSpec(source.spec, where);

  TensorClaims claims(folder.string());
  const bool indexed = fs::exists(folder / kIndex);
  for (const auto& [name, tensors] : FindShards(folder))
    AddShard(folder / name, indexed ? &tensors : nullptr, *family, quantisation.has_value(), claims);
  MakeRoom(source.spec, source.tensors);
  ForEachWeight(source.spec, source.tensors, [&](TensorView& view, const WeightInfo& info) {
    const std::string name = family->tensor_name(info);
    const auto path = MlxPath(name);
    if (quantisation && path && claims.Has(*path + ".scales")) {
      view = TakeMlxMatrix(claims, name, info.shape, *quantisation, folder.string());
    } else {
      view = claims.Take(name, info.shape);
      if (AffineBits(view.type))
        throw Fail(ErrorKind::kCorruptFile,
                   "{}: \"{}\" holds codes, but no scales lie beside it; download the "
                   "folder again",
                   folder.string(), name);
    }
    if (info.role == Role::kGain && family->gain_minus_one && family->gain_minus_one(info))
      view = WithOneAdded(view);
  });
  CheckTiedHead(source, claims);
  claims.Done();
  return source;
}

}  // namespace pd
