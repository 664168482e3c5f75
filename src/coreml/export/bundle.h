// A bundle: the folder that `export` writes, with one package per shard and bundle.json.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coreml/export/encode.h"
#include "coreml/mil/mil_ops.h"
#include "kv/segment.h"

namespace pd {

inline constexpr const char* kBundleFile = "bundle.json";

// Increased when the meaning of a bundle's content changes: older bundles are refused.
inline constexpr int kBundleFormat = 2;
// Increased when the rules for making programs change (op forms, splits, folding).
inline constexpr int kRulesVersion = 1;

struct BundleShard {
  std::string package;  // the folder's name in the bundle
  int first_layer = 0, end_layer = 0;
  int64_t weight_bytes = 0;
};

struct Bundle {
  std::filesystem::path path;
  uint64_t spec = 0, weights = 0;  // SpecDigest and WeightsDigest of the model
  std::string family;
  WeightFormat format = WeightFormat::kFp16;
  mil::LoweringOptions lowering;
  float stream_scale = 1;  // the host multiplies embedded tokens by it
  std::vector<mil::PrefillShape> functions;
  std::vector<BundleShard> shards;  // in order of layers
  struct File {
    int64_t bytes = 0;
    uint64_t digest = 0;
  };
  std::map<std::string, File> files;  // by path in the bundle, bundle.json itself left out
  // Which folder and which bundle.json were read: another, once the bundle is replaced.
  using Stamp = std::array<int64_t, 8>;
  Stamp stamp{};
};

// Reads bundle.json and checks every file against it. Throws kNotFound, and kCorruptFile that names the file
// which is missing, altered or not listed, or says that an older version wrote the bundle. What Finder,
// Spotlight and editors leave behind is ignored. Of a bundle that is replaced meanwhile, the new one is read;
// kBusy when that happens again and again.
Bundle ReadBundle(const std::filesystem::path& path);

// Reads a bundle and calls `use`, which opens its files; both again when the bundle was replaced meanwhile.
// So what `use` has opened when this returns is what was checked. Throws as ReadBundle and what `use` throws.
void UseBundle(const std::filesystem::path& path, const std::function<void(const Bundle&)>& use);

// Whether the bundle that was read is still the one at its path; true of a bundle that was not read.
bool IsCurrent(const Bundle& bundle);

// The files at `path` that export wrote, by path in the folder, bundle.json included: those that a
// bundle.json of any version of ours lists. Throws kBadRequest when there is none, and for any other file
// that lies there, but for what ReadBundle ignores.
std::vector<std::string> FilesOfBundle(const std::filesystem::path& path);

// Throws kBadRequest unless the bundle was made from this model.
void CheckBundleModel(const Bundle& bundle, uint64_t spec, uint64_t weights);

// Lists the files of `bundle.path` and writes its bundle.json.
void WriteBundle(Bundle& bundle);

}  // namespace pd
