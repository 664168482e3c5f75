// Turns a model into a bundle of Core ML packages, in bounded memory.
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
  // Rows of a chunk and buckets of history, each a multiple of 32; every chunk goes with every bucket.
  // Nothing: 128 and 512, and 0, 1024 and 4096, as far as the model's context needs them.
  std::optional<std::vector<int>> chunks, histories;
  int64_t max_shard_bytes = 900'000'000;  // of weights as stored; a layer is never divided
  mil::LoweringOptions lowering;
  bool force = false;  // export in spite of violations of the rules
  // Tokens of sample text: activations are measured on them, scales and tables chosen, and the stored weights
  // compared. Empty: none of that.
  std::vector<TokenId> sample;
};

struct ExportProgress {
  const char* stage;            // "digest", "measure", "write", "check"
  int64_t done = 0, total = 0;  // bytes of source, or layers
};

// Stored weights against fp16 ones, on the sample.
struct LayerQuality {
  float magnitude = 0;  // the largest activation, as scaled
  double k_cosine = 1, v_cosine = 1, k_rms_ratio = 1, v_rms_ratio = 1;
};

struct ExportReport {
  Bundle bundle;
  std::vector<LayerQuality> layers;       // empty without a sample
  std::vector<mil::LintedFunction> lint;  // of each shard and function
  std::vector<std::string> lint_package;  // the shard that lint[i] belongs to
  int64_t source_bytes = 0, written_bytes = 0;
};

// Writes the bundle to `out`, which must not exist, be empty, or hold a bundle; until it is complete it lies
// beside it under another name, so that a killed export leaves no half bundle. Throws kBadRequest for options
// that make no sense, kUnsupported for what the Neural Engine cannot run (violations of the rules, unless
// forced; magnitudes beyond fp16), kDevice when files cannot be written.
ExportReport ExportBundle(const ModelSource& model, const std::filesystem::path& out,
                          const ExportOptions& options,
                          const std::function<void(const ExportProgress&)>& progress);

// The chunks and buckets that `options` means for this model. Throws kBadRequest.
std::vector<mil::PrefillShape> ChooseShapes(const ModelSpec& spec, const ExportOptions& options);

// First layers of shards of at most `max_bytes` each, even in size; `layer_bytes` are those of each layer.
std::vector<int> ChooseShards(const std::vector<int64_t>& layer_bytes, int64_t max_bytes);

}  // namespace pd
