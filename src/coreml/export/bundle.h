// A bundle: the folder that `export` makes, with one package for each shard and bundle.json.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "coreml/export/encode.h"
#include "coreml/mil/mil_ops.h"
#include "kv/segment.h"

namespace pd {

inline constexpr const char* kBundleFile = "bundle.json";

// Raised when a bundle's content changes its meaning: older bundles are refused.
inline constexpr int kBundleFormat = 2;
// Raised when the rules that programs are made by change (op forms, splits, folding).
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
  float stream_scale = 1;  // embedded tokens are multiplied by it on the host
  std::vector<mil::PrefillShape> functions;
  std::vector<BundleShard> shards;  // in order of layers
  struct File {
    int64_t bytes = 0;
    uint64_t digest = 0;
  };
  std::map<std::string, File> files;  // by path in the bundle, bundle.json itself left out
};

// Reads bundle.json and checks every file against it. Throws kNotFound, and kCorruptFile that names the file
// which is missing, altered or not listed, or says that an older version wrote the bundle.
Bundle ReadBundle(const std::filesystem::path& path);

// Throws kBadRequest unless the bundle was made from this model.
void CheckBundleModel(const Bundle& bundle, uint64_t spec, uint64_t weights);

// Lists the files of `bundle.path` and writes its bundle.json.
void WriteBundle(Bundle& bundle);

}  // namespace pd
