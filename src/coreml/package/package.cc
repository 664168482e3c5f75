#include "coreml/package/package.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "coreml/mil/check.h"
#include "coreml/package/blob.h"
#include "coreml/package/manifest.h"
#include "coreml/package/model_proto.h"

namespace pd {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostModelBytes = size_t(1) << 30;  // a program; weights are elsewhere

// Links every weight file constant of a program to its bytes.
class Linker {
 public:
  explicit Linker(const std::optional<fs::path>& weights) : weights_(weights) {}

  void Link(mil::Program& program) {
    for (auto& [name, function] : program.functions) Link(function.body, "function " + name);
  }

 private:
  void Link(mil::Block& block, const std::string& where) {
    for (mil::Operation& op : block.operations) {
      const std::string place =
          fmt::format("{}: {} '{}'", where, op.type, op.outputs.empty() ? "" : op.outputs[0].name);
      for (auto& [key, value] : op.attributes) Link(value, place, key);
      for (auto& [parameter, bindings] : op.inputs)
        for (mil::Binding& binding : bindings)
          if (auto* value = std::get_if<mil::Value>(&binding)) Link(*value, place, parameter);
      for (mil::Block& inner : op.blocks) Link(inner, place);
    }
  }

  void Link(mil::Value& value, const std::string& place, const std::string& key) {
    auto* blob = std::get_if<mil::Blob>(&value.data);
    if (!blob) return;
    const std::string where = fmt::format("{}: {}", place, key);
    // The loader takes the last part of the name and looks for it in the weights folder.
    const std::string file = fs::path(blob->file).filename().string();
    if (!weights_ || file.empty() || file == "." || file == "..")
      throw Fail(ErrorKind::kCorruptFile, "{}: weight file '{}' is not in the package", where, blob->file);
    auto it = files_.find(file);
    if (it == files_.end()) it = files_.try_emplace(file, *weights_ / file).first;
    *blob = it->second.Find(blob->offset, value.type, blob->file, where);
  }

  std::optional<fs::path> weights_;
  std::map<std::string, BlobFile> files_;
};

}  // namespace

Package ParseModel(const std::string& bytes, const std::string& where) {
  proto::Model model;
  if (!model.ParseFromString(bytes)) throw Fail(ErrorKind::kCorruptFile, "{}: not a serialised model", where);
  Package package = FromProto(model, where);
  try {
    mil::CheckProgram(package.program);
  } catch (const Error& error) {
    throw Fail(error.kind(), "{}: {}", where, error.what());
  }
  return package;
}

Package ReadPackage(const fs::path& directory) {
  const Manifest manifest = ReadManifest(directory);
  const fs::path model = directory / manifest.model;
  Package package = ParseModel(ReadTextFile(model, kMostModelBytes), model.string());
  std::optional<fs::path> weights;
  if (manifest.weights) weights = directory / *manifest.weights;
  try {
    Linker(weights).Link(package.program);
  } catch (const Error& error) {
    throw Fail(error.kind(), "{}: {}", directory.string(), error.what());
  }
  return package;
}

std::string SerialiseModel(const Package& package) { return ToProto(package).SerializeAsString(); }

void WritePackage(const fs::path& directory, const Package& package) {
  const std::string bytes = SerialiseModel(package);
  const fs::path weights = directory / kWeightsPlace / "weight.bin";
  const bool has_weights = fs::exists(weights);
  uint64_t digest = Digest(bytes);
  if (has_weights) digest = FileDigest(weights, digest);
  const fs::path model = directory / kModelPlace;
  std::error_code error;
  fs::create_directories(model.parent_path(), error);
  if (error) throw Fail(ErrorKind::kDevice, "{}: {}", model.parent_path().string(), error.message());
  WriteFileAtomically(model, bytes);
  WriteFileAtomically(directory / "Manifest.json", ManifestText(digest, has_weights));
}

}  // namespace pd
