#include "coreml/export/bundle.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "coreml/export/partial_folder.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostBundleBytes = size_t(16) << 20;  // of bundle.json

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

uint64_t FromHex(const std::string& text, const std::string& where) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size())
    throw Fail(ErrorKind::kCorruptFile, "{}: '{}' is not a digest", where, text);
  return value;
}

// What systems and editors leave in any folder, and the mark of an export that was killed at its very end.
bool IsLitter(const std::string& name) {
  for (const char* whole : {".DS_Store", ".Spotlight-V100", ".Trashes", ".fseventsd", ".TemporaryItems",
                            "Thumbs.db", "desktop.ini", kPartialMark})
    if (name == whole) return true;
  return name.starts_with("._") || name.ends_with("~") || name.ends_with(".swp") || name.ends_with(".swo") ||
         (name.starts_with("#") && name.ends_with("#"));
}

// Whatever is no folder below `path`, bundle.json and litter left out, by its path there, in order.
std::vector<std::string> ListFiles(const fs::path& path) {
  std::vector<std::string> files;
  const fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator it(path); it != end; ++it) {
    const bool folder = fs::is_directory(it->symlink_status());
    if (IsLitter(it->path().filename().string())) {
      if (folder) it.disable_recursion_pending();
      continue;
    }
    const std::string name = it->path().lexically_relative(path).generic_string();
    if (!folder && name != kBundleFile) files.push_back(name);
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
      throw Fail(ErrorKind::kCorruptFile, "{}: changed since the bundle was made; {}", path.string(),
                 kRemedy);
  }
  for (const std::string& name : ListFiles(bundle.path))
    if (!bundle.files.contains(name))
      throw Fail(ErrorKind::kCorruptFile, "{}: not part of the bundle; remove it",
                 (bundle.path / name).string());
}

// bundle.json ends with a digest of the rest of itself.
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

// All 0 where there is no bundle.
Bundle::Stamp StampOf(const fs::path& path) {
#ifdef __APPLE__
  const auto time = [](const struct stat& s) {
    return std::pair(s.st_ctimespec.tv_sec, s.st_ctimespec.tv_nsec);
  };
#else
  const auto time = [](const struct stat& s) { return std::pair(s.st_ctim.tv_sec, s.st_ctim.tv_nsec); };
#endif
  Bundle::Stamp stamp{};
  size_t at = 0;
  for (const fs::path& part : {path, path / kBundleFile}) {
    struct stat status{};
    if (::stat(part.c_str(), &status) != 0) return {};
    const auto [seconds, nanoseconds] = time(status);
    for (const auto value :
         {int64_t(status.st_dev), int64_t(status.st_ino), int64_t(seconds), int64_t(nanoseconds)})
      stamp[at++] = value;
  }
  return stamp;
}

// Does `work` on the bundle at `path`, and again as long as the bundle is another one afterwards, whether
// that made the work fail or not.
template <class Work>
void WhileCurrent(const fs::path& path, Work work) {
  constexpr int kMostTimes = 20;
  for (int i = 0; i < kMostTimes; ++i) {
    const Bundle::Stamp stamp = StampOf(path);
    try {
      work(stamp);
      if (StampOf(path) == stamp) return;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kCancelled || StampOf(path) == stamp) throw;
    } catch (const fs::filesystem_error& error) {  // a folder went away while it was listed
      if (StampOf(path) == stamp) throw Fail(ErrorKind::kNotFound, "{}", error.what());
    }
  }
  throw Fail(ErrorKind::kBusy, "{}: the bundle is replaced again and again; try again later", path.string());
}

Bundle ReadOnce(const fs::path& path);

}  // namespace

Bundle ReadBundle(const fs::path& path) {
  Bundle bundle;
  UseBundle(path, [&](const Bundle& read) { bundle = read; });
  return bundle;
}

void UseBundle(const fs::path& path, const std::function<void(const Bundle&)>& use) {
  WhileCurrent(path, [&](const Bundle::Stamp& stamp) {
    Bundle bundle = ReadOnce(path);
    bundle.stamp = stamp;
    use(bundle);
  });
}

bool IsCurrent(const Bundle& bundle) {
  return bundle.stamp == Bundle::Stamp{} || StampOf(bundle.path) == bundle.stamp;
}

std::vector<std::string> FilesOfBundle(const fs::path& path) {
  constexpr const char* kRemedy = "choose another folder, or remove it yourself";
  const fs::path file = path / kBundleFile;
  Json json;
  try {
    json = ParseJson(ReadTextFile(file, kMostBundleBytes), file.string());
  } catch (const Error&) {
    json = nullptr;
  }
  const bool ours = json.is_object() && json.contains("digest") && json["digest"].is_string() &&
                    json["digest"].get<std::string>() == OwnDigest(json) && json.contains("files") &&
                    json["files"].is_object();
  if (!ours)
    throw Fail(ErrorKind::kBadRequest, "{}: exists and holds no bundle that export wrote; {}", path.string(),
               kRemedy);
  std::vector<std::string> files = {kBundleFile};
  for (const auto& [name, entry] : json["files"].items()) files.push_back(name);
  for (const std::string& name : ListFiles(path)) {
    const bool regular = fs::is_regular_file(fs::symlink_status(path / name));
    if (!regular || std::ranges::find(files, name) == files.end())
      throw Fail(ErrorKind::kBadRequest,
                 "{}: not part of the bundle, which is not replaced; move it away, or {}",
                 (path / name).string(), kRemedy);
  }
  return files;
}

namespace {

Bundle ReadOnce(const fs::path& path) {
  const fs::path file = path / kBundleFile;
  const std::string where = file.string();
  std::error_code error;
  if (!fs::exists(file, error))
    throw Fail(ErrorKind::kNotFound, "{}: no bundle; make one with pd-engine export MODEL -o {}", where,
               path.string());
  const Json json = ParseJson(ReadTextFile(file, kMostBundleBytes), where);
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
    throw Fail(ErrorKind::kCorruptFile, "{}: changed since the bundle was made; export the model again",
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

}  // namespace

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
