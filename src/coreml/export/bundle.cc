#include "coreml/export/bundle.h"

#include <algorithm>
#include <charconv>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

uint64_t FromHex(const std::string& text, const std::string& where) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size())
    throw Fail(ErrorKind::kCorruptFile, "{}: '{}' is no digest", where, text);
  return value;
}

// Every regular file below `path` but bundle.json, by its path there, in order.
std::vector<std::string> ListFiles(const fs::path& path) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    const std::string name = entry.path().lexically_relative(path).generic_string();
    if (!entry.is_directory() && name != kBundleFile) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

void CheckFiles(const Bundle& bundle) {
  constexpr const char* kRemedy = "export the model again";
  for (const auto& [name, file] : bundle.files) {
    const fs::path path = bundle.path / name;
    std::error_code error;
    if (!fs::is_regular_file(path, error))
      throw Fail(ErrorKind::kCorruptFile, "{}: missing; {}", path.string(), kRemedy);
    const auto size = int64_t(fs::file_size(path));
    if (size != file.bytes)
      throw Fail(ErrorKind::kCorruptFile, "{}: {} bytes, the bundle was made with {}; {}", path.string(),
                 size, file.bytes, kRemedy);
    if (FileDigest(path) != file.digest)
      throw Fail(ErrorKind::kCorruptFile, "{}: altered since the bundle was made; {}", path.string(),
                 kRemedy);
  }
  for (const std::string& name : ListFiles(bundle.path))
    if (!bundle.files.contains(name))
      throw Fail(ErrorKind::kCorruptFile, "{}: not part of the bundle; remove it",
                 (bundle.path / name).string());
}

// bundle.json closes with a digest of the rest of itself.
std::string OwnDigest(Json json) {
  json.erase("digest");
  return Hex(Digest(json.dump()));
}

template <class T>
T Known(std::optional<T> value, const std::string& where, const char* key) {
  if (!value)
    throw Fail(ErrorKind::kUnsupported, "{}: an unknown kind of {}; use a newer version", where, key);
  return *value;
}

constexpr const char* KeyName(KeyForm form) { return form == KeyForm::kRaw ? "raw" : "rotated"; }

void ReadShards(const Json& shards, const std::string& where, Bundle& bundle) {
  for (const Json& json : shards) {
    JsonReader reader(json, where + ": shards");
    BundleShard shard;
    shard.package = reader.String("package");
    shard.first_layer = int(reader.Int("first_layer"));
    shard.end_layer = int(reader.Int("end_layer"));
    shard.weight_bytes = reader.Int("weight_bytes", 0, INT64_MAX);
    reader.Done();
    const int expected = bundle.shards.empty() ? 0 : bundle.shards.back().end_layer;
    if (shard.first_layer != expected || shard.end_layer <= shard.first_layer)
      throw Fail(ErrorKind::kCorruptFile, "{}: shard {} holds layers {} to {}", where, shard.package,
                 shard.first_layer, shard.end_layer);
    bundle.shards.push_back(std::move(shard));
  }
}

}  // namespace

Bundle ReadBundle(const fs::path& path) {
  const fs::path file = path / kBundleFile;
  const std::string where = file.string();
  std::error_code error;
  if (!fs::exists(file, error))
    throw Fail(ErrorKind::kNotFound, "{}: no bundle; make one with pd-engine export MODEL -o {}", where,
               path.string());
  const Json json = ParseJson(ReadTextFile(file, size_t(16) << 20), where);
  JsonReader reader(json, where);
  Bundle bundle;
  bundle.path = path;
  const int64_t format = reader.Int("format");
  if (format != kBundleFormat)
    throw Fail(ErrorKind::kCorruptFile, "{}: bundle format {}, this version reads {}; export the model again",
               where, format, kBundleFormat);
  const int64_t rules = reader.Int("rules");
  if (rules != kRulesVersion)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: made by rules {}, this version has rules {}; export the model again", where, rules,
               kRulesVersion);
  if (reader.String("digest") != OwnDigest(json))
    throw Fail(ErrorKind::kCorruptFile, "{}: altered since the bundle was made; export the model again",
               where);
  bundle.spec = FromHex(reader.String("spec"), where);
  bundle.weights = FromHex(reader.String("weights"), where);
  bundle.family = reader.String("family");
  bundle.format = Known(WeightFormatOf(reader.String("weight_format")), where, "weight_format");
  bundle.lowering.attention = Known(mil::AttentionFormOf(reader.String("attention")), where, "attention");
  const std::string keys = reader.String("keys");
  if (keys != KeyName(KeyForm::kRaw) && keys != KeyName(KeyForm::kRotated))
    throw Fail(ErrorKind::kUnsupported, "{}: an unknown kind of keys; use a newer version", where);
  bundle.lowering.keys = keys == KeyName(KeyForm::kRaw) ? KeyForm::kRaw : KeyForm::kRotated;
  bundle.stream_scale = float(reader.Number("stream_scale"));
  for (const Json& function : reader.Value("functions")) {
    JsonReader shape(function, where + ": functions");
    bundle.functions.push_back({int(shape.Int("tokens", 1)), int(shape.Int("history"))});
    shape.Done();
  }
  ReadShards(reader.Value("shards"), where, bundle);
  for (const auto& [name, value] : reader.Value("files").items()) {
    JsonReader entry(value, fmt::format("{}: {}", where, name));
    bundle.files[name] = {entry.Int("bytes", 0, INT64_MAX), FromHex(entry.String("digest"), entry.where())};
    entry.Done();
  }
  reader.Done();
  if (bundle.functions.empty() || bundle.shards.empty())
    throw Fail(ErrorKind::kCorruptFile, "{}: no functions or no shards", where);
  CheckFiles(bundle);
  return bundle;
}

void CheckBundleModel(const Bundle& bundle, uint64_t spec, uint64_t weights) {
  if (bundle.spec == spec && bundle.weights == weights) return;
  throw Fail(ErrorKind::kBadRequest,
             "{}: made from another model ({}); export this one with pd-engine export", bundle.path.string(),
             bundle.spec == spec ? "same shape, other weights" : "another architecture");
}

void WriteBundle(Bundle& bundle) {
  for (const std::string& name : ListFiles(bundle.path)) {
    const fs::path path = bundle.path / name;
    bundle.files[name] = {int64_t(fs::file_size(path)), FileDigest(path)};
  }
  Json functions = Json::array(), shards = Json::array(), files = Json::object();
  for (const mil::PrefillShape& f : bundle.functions)
    functions.push_back({{"tokens", f.tokens}, {"history", f.history}});
  for (const BundleShard& s : bundle.shards)
    shards.push_back({{"package", s.package},
                      {"first_layer", s.first_layer},
                      {"end_layer", s.end_layer},
                      {"weight_bytes", s.weight_bytes}});
  for (const auto& [name, file] : bundle.files)
    files[name] = {{"bytes", file.bytes}, {"digest", Hex(file.digest)}};
  Json json = {{"format", kBundleFormat},
               {"rules", kRulesVersion},
               {"family", bundle.family},
               {"spec", Hex(bundle.spec)},
               {"weights", Hex(bundle.weights)},
               {"weight_format", Name(bundle.format)},
               {"attention", mil::Name(bundle.lowering.attention)},
               {"keys", KeyName(bundle.lowering.keys)},
               {"stream_scale", bundle.stream_scale},
               {"functions", functions},
               {"shards", shards},
               {"files", files}};
  json["digest"] = OwnDigest(json);
  WriteFileAtomically(bundle.path / kBundleFile, json.dump(2) + "\n");
}

}  // namespace pd
