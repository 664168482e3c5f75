// The model that a command works on, and where models and measurements are kept.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/bandwidth.h"
#include "formats/model_source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pd::cli {

// $PD_ENGINE_CACHE, $XDG_CACHE_HOME/pd-engine or ~/.cache/pd-engine; nothing when no variable says where.
std::optional<std::filesystem::path> CacheFolder();

// Below the cache folder: where backends keep what they compile and run.
std::filesystem::path KernelFolder(const std::filesystem::path& cache);
// Makes that folder, for this user alone, and sets what backends read from the environment, unless it is set.
// Before the first call of a device.
void PrepareEnvironment();

// `given`, whether it exists or not; when it is empty the default model. Throws kNotFound when that is
// absent, with the way to get it.
std::filesystem::path ModelPath(const std::string& given);

// Where `export` puts the model's bundle and where --prefill coreml looks for it, unless they are told: in
// the cache folder, by the digest of its weights, which are read for it. Throws kNotFound without a cache
// folder.
std::filesystem::path DefaultBundlePath(ModelSource& model);

// Whether there is any bundle of a model of this family where DefaultBundlePath would be.
bool AnyBundle(const ModelSource& model);

// Throws kNotFound: device coreml, asked for by `flag`, has nothing to run.
[[noreturn]] void FailNotExported(std::string_view flag, const ModelSource& model);

// This machine's memory rates, kept in the cache folder, or else in the current one.
BandwidthStore MachineRates();

// From the model's own files. The template is nullptr when it has none.
std::shared_ptr<const Tokenizer> OpenTokenizer(const ModelSource& model);
std::shared_ptr<const ChatTemplate> OpenChatTemplate(const ModelSource& model);

}  // namespace pd::cli
