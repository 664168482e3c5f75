#include "coreml/package/manifest.h"

#include <algorithm>
#include <cctype>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFormat = "1.0.0";
constexpr const char* kAuthor = "com.apple.CoreML";
constexpr const char* kModelName = "model.mlmodel";
constexpr const char* kWeightsName = "weights";

// A UUID in the layout of a random (version 4) one, filled from a digest of the content.
std::string Identifier(uint64_t digest, const char* item) {
  const uint64_t high = Digest(item, digest), low = Digest(item, high);
  return fmt::format("{:08X}-{:04X}-4{:03X}-{:04X}-{:012X}", high >> 32, high >> 16 & 0xffff, high & 0xfff,
                     (low >> 48 & 0x3fff) | 0x8000, low & 0xffffffffffff);
}

bool IsIdentifier(const std::string& text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !std::isxdigit(uint8_t(text[i]))) return false;
  }
  return true;
}

struct Item {
  std::string author, name, path;
};

Item ReadItem(const std::string& key, const Json& json, const std::string& where, const fs::path& data) {
  if (!IsIdentifier(key)) throw Fail(ErrorKind::kCorruptFile, "{}: item '{}' is not a UUID", where, key);
  JsonReader reader(json, fmt::format("{}: item {}", where, key));
  Item item{reader.String("author"), reader.String("name"), reader.String("path")};
  reader.String("description");
  reader.Done();
  // Apple joins author and name. A path outside the package is refused.
  if (item.path != item.author + "/" + item.name || fs::path(item.path).lexically_normal() != item.path ||
      item.path.starts_with("../") || item.path.starts_with("/"))
    throw Fail(ErrorKind::kCorruptFile, "{}: path '{}' is not author/name", reader.where(), item.path);
  std::error_code error;
  if (!fs::exists(data / item.path, error))
    throw Fail(ErrorKind::kCorruptFile, "{}: '{}' does not exist", reader.where(), item.path);
  return item;
}

}  // namespace

Manifest ReadManifest(const fs::path& package) {
  const fs::path path = package / "Manifest.json";
  const std::string where = path.string();
  std::error_code error;
  if (!fs::is_directory(package, error))
    throw Fail(ErrorKind::kNotFound, "{}: no such package (a folder)", package.string());
  const Json json = ParseJson(ReadTextFile(path, size_t(1) << 20), where);
  JsonReader reader(json, where);
  reader.Expect("fileFormatVersion", kFormat);
  if (!reader.Has("fileFormatVersion"))
    throw Fail(ErrorKind::kCorruptFile, "{}: no fileFormatVersion", where);
  const std::string root = reader.String("rootModelIdentifier");
  const Json& items = reader.Value("itemInfoEntries");
  reader.Done();
  if (!items.is_object()) throw Fail(ErrorKind::kCorruptFile, "{}: itemInfoEntries is not an object", where);

  Manifest manifest;
  for (const auto& [key, value] : items.items()) {
    const Item item = ReadItem(key, value, where, package / "Data");
    const fs::path place = fs::path("Data") / item.path;
    if (key == root) manifest.model = place;
    if (item.author == kAuthor && item.name == kWeightsName) manifest.weights = place;
  }
  if (manifest.model.empty())
    throw Fail(ErrorKind::kCorruptFile, "{}: rootModelIdentifier '{}' names no item", where, root);
  return manifest;
}

std::string ManifestText(uint64_t digest, bool has_weights) {
  const auto item = [](const char* name, const char* description) {
    return Json{{"author", kAuthor},
                {"description", description},
                {"name", name},
                {"path", fmt::format("{}/{}", kAuthor, name)}};
  };
  const std::string model = Identifier(digest, kModelName), weights = Identifier(digest, kWeightsName);
  Json items = Json::object();
  items[model] = item(kModelName, "CoreML Model Specification");
  if (has_weights) items[weights] = item(kWeightsName, "CoreML Model Weights");
  const Json manifest = {
      {"fileFormatVersion", kFormat}, {"itemInfoEntries", items}, {"rootModelIdentifier", model}};
  return manifest.dump(4) + "\n";
}

}  // namespace pd
