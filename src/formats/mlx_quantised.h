// Folders that MLX quantised (mlx-lm's layout, as mlx-community publishes it): a matrix NAME.weight holds
// codes in 32-bit words, NAME.scales and NAME.biases lie beside it, and config.json says how under
// "quantization".
#pragma once
#include <map>
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "formats/claims.h"

namespace pd {

struct MlxQuantisation {
  struct Format {
    int bits = 0, group = 0;  // bits 0: plain
  };
  Format usual;
  std::map<std::string, Format> named;  // layers that differ, by their path: "model.layers.0.mlp.down_proj"

  const Format& Of(const std::string& path) const;
};

// What config.json says; nothing when it has no "quantization". Removes the keys that it has read, so that
// nobody takes them for another scheme's. Throws kCorruptFile, and kUnsupported for modes other than affine.
std::optional<MlxQuantisation> TakeMlxQuantisation(Json& config, const std::string& where);

// Takes the quantised matrix `name` ("PATH.weight", with shape [rows, columns]) and what belongs to it.
// Throws kCorruptFile when the parts do not fit each other, the shape or the format.
TensorView TakeMlxMatrix(TensorClaims& claims, const std::string& name, const Shape& shape,
                         const MlxQuantisation& quantisation, const std::string& where);

// The path of "PATH.weight"; nothing for other names.
std::optional<std::string> MlxPath(const std::string& name);

}  // namespace pd
