// Converts a model to a bundle of Core ML packages, in bounded memory.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coreml/export/bundle.h"
#include "coreml/mil/lint.h"
#include "formats/model_source.h"
#include "model/rows.h"

namespace pd {

struct ExportOptions {
  WeightFormat weights = WeightFormat::kFp16;
  // Rows of a chunk and buckets of history, each a multiple of 32; every chunk is combined with every bucket.
  // nullopt: 128 and 512, and 0, 1024 and 4096, as far as the model's context needs them.
  std::optional<std::vector<int>> chunks, histories;
  int64_t max_shard_bytes = 900'000'000;  // of stored weights; a layer is never divided
  mil::LoweringOptions lowering;
  bool force = false;  // export despite rule violations
  // Tokens of sample text, used to measure activations, to choose scales and tables, and to check the stored
  // weights. Empty: none of these.
  std::vector<TokenId> sample;
};

struct ExportProgress {
  const char* stage;            // "digest", "measure", "write", "check"
  int64_t done = 0, total = 0;  // bytes of source, or layers
};

// Stored weights compared with fp16 ones, on the sample.
struct LayerQuality {
  float magnitude = 0;  // the largest activation, after scaling
  double k_cosine = 1, v_cosine = 1, k_rms_ratio = 1, v_rms_ratio = 1;
};

struct ExportReport {
  Bundle bundle;
  std::vector<LayerQuality> layers;       // empty without a sample
  std::vector<mil::LintedFunction> lint;  // for each shard and function
  std::vector<std::string> lint_package;  // the shard that lint[i] belongs to
  int64_t source_bytes = 0, written_bytes = 0;
};

// Writes the bundle to `out`, which must not exist, be empty, or hold a bundle and nothing else
// (FilesOfBundle); until it is complete it lies beside it under another name, so that a killed export leaves
// what was there. Throws kBadRequest for such a folder and for options that make no sense, kUnsupported for
// what the Neural Engine cannot run (violations of the rules, unless forced; magnitudes beyond fp16), kDevice
// when files cannot be written.
ExportReport ExportBundle(const ModelSource& model, const std::filesystem::path& out,
                          const ExportOptions& options,
                          const std::function<void(const ExportProgress&)>& progress);

// The chunks and buckets that `options` gives for this model. Throws kBadRequest.
std::vector<mil::PrefillShape> ChooseShapes(const ModelSpec& spec, const ExportOptions& options);

// First layers of shards of at most `max_bytes` each, of similar size; `layer_bytes`: bytes of each layer.
std::vector<int> ChooseShards(const std::vector<int64_t>& layer_bytes, int64_t max_bytes);

}  // namespace pd
