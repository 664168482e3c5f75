// Manifest.json: the list of a package's files.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace pd {

// The files of an ML Program; paths are relative to the package.
struct Manifest {
  std::filesystem::path model;                   // the serialised program
  std::optional<std::filesystem::path> weights;  // the folder of weight files
};

// As strict as Apple's loader: checks format version, identifiers, items, and that each listed file exists.
// Throws kNotFound, kCorruptFile.
Manifest ReadManifest(const std::filesystem::path& package);

// The manifest of a package with files at kModelPlace and kWeightsPlace. Identifiers derive from `digest`, so
// that the same content gives the same bytes.
inline constexpr const char* kModelPlace = "Data/com.apple.CoreML/model.mlmodel";
inline constexpr const char* kWeightsPlace = "Data/com.apple.CoreML/weights";
std::string ManifestText(uint64_t digest, bool has_weights);

}  // namespace pd
