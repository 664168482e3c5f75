#include "formats/mlx_quantised.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace pd {
namespace {

constexpr const char* kKey = "quantization";
constexpr const char* kSameForOthers = "quantization_config";  // a copy that mlx-lm writes for other readers
constexpr std::string_view kSuffix = ".weight";

MlxQuantisation::Format ReadFormat(JsonReader& format) {
  const std::string mode = format.StringOr("mode", "affine");
  if (mode != "affine")
    throw Fail(
        ErrorKind::kUnsupported,
        "{}: \"mode\" is \"{:.40}\"; readable is affine: take the model in that mode, or a GGUF file of it",
        format.where(), mode);
  const auto bits = int(format.Int("bits", 1, 32)), group = int(format.Int("group_size", 1, 4096));
  if (AffineBits(AffineType(bits)) != bits)
    throw Fail(ErrorKind::kUnsupported, "{}: \"bits\" is {}; readable are 2, 3, 4, 5, 6 and 8",
               format.where(), bits);
  if (group != 32 && group != 64 && group != 128)
    throw Fail(ErrorKind::kUnsupported, "{}: \"group_size\" is {}; readable are 32, 64 and 128",
               format.where(), group);
  return {bits, group};
}

}  // namespace

const MlxQuantisation::Format& MlxQuantisation::Of(const std::string& path) const {
  const auto it = named.find(path);
  return it == named.end() ? usual : it->second;
}

std::optional<MlxQuantisation> TakeMlxQuantisation(Json& config, const std::string& where) {
  if (!config.is_object() || !config.contains(kKey) || config[kKey].is_null()) return std::nullopt;
  const Json json = config[kKey];
  JsonReader reader(json, where + ": \"" + kKey + "\"");
  MlxQuantisation quantisation;
  quantisation.usual = ReadFormat(reader);
  for (const auto& [path, value] : json.items()) {
    if (value.is_boolean()) {
      reader.Bool(path);
      quantisation.named[path] = value.get<bool>() ? quantisation.usual : MlxQuantisation::Format();
    } else if (value.is_object()) {
      JsonReader layer = reader.Object(path);
      quantisation.named[path] = ReadFormat(layer);
      layer.Done();
    }
  }
  reader.Done();
  config.erase(kKey);
  if (config.contains(kSameForOthers) && config[kSameForOthers] == json) config.erase(kSameForOthers);
  return quantisation;
}

std::optional<std::string> MlxPath(const std::string& name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  return name.substr(0, name.size() - kSuffix.size());
}

TensorView TakeMlxMatrix(TensorClaims& claims, const std::string& name, const Shape& shape,
                         const MlxQuantisation& quantisation, const std::string& where) {
  const std::string path = *MlxPath(name);
  const MlxQuantisation::Format& format = quantisation.Of(path);
  if (format.bits == 0)
    throw Fail(
        ErrorKind::kCorruptFile,
        "{}: \"{}\" is not quantised by config.json, but has scales beside it; download the folder again",
        where, name);
  if (shape.size() != 2 || shape[1] % format.group != 0)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: \"{}\" cannot be quantised in groups of {}; download the folder again", where, name,
               format.group);
  TensorView view = claims.Take(name, {shape[0], shape[1] * format.bits / 32});
  const Shape groups{shape[0], shape[1] / format.group};
  const TensorView scales = claims.Take(path + ".scales", groups),
                   biases = claims.Take(path + ".biases", groups);
  if (IsQuantised(scales.type) || scales.type != biases.type)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: \"{}\" has scales of {} and biases of {}; download the folder again", where, name,
               Name(scales.type), Name(biases.type));
  if (!AffineBits(view.type))
    throw Fail(ErrorKind::kCorruptFile,
               "{}: \"{}\" is {}, but has scales beside it; download the folder again", where, name,
               Name(view.type));
  view.type = AffineType(format.bits);
  view.shape = shape;
  view.affine = AffineScales{format.group, scales.type, scales.bytes, biases.bytes};
  // The three may lie in different shards.
  view.owner = std::make_shared<std::array<std::shared_ptr<const void>, 3>>(
      std::array{view.owner, scales.owner, biases.owner});
  return view;
}

}  // namespace pd
