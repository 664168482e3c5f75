// Tokenizer::FromFolder.
#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "text/folder_config.h"
#include "text/tokenizer_builder.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = size_t(256) << 20;  // bytes; ten times the largest published tokenizer.json

TokenizerHandle Load(const fs::path& path, const FolderConfig& config) {
  const std::string json = ReadTextFile(path, kMaxFile);
  std::vector<PdTextAddedToken> added;
  for (const AddedToken& token : config.added)
    added.push_back({FfiView(token.content), uint32_t(token.id), token.special, token.single_word,
                     token.lstrip, token.rstrip, token.normalized});
  PdTokenizer* handle = nullptr;
  FfiBytes error;
  const int32_t status =
      pd_text_tokenizer_from_json(FfiView(json), {added.data(), added.size()}, &handle, &error);
  if (status != 0)
    throw FfiError(status, error, path.string(),
                   status == kPdTextCorrupt ? "download it again" : "use a GGUF file of the model");
  return TokenizerHandle(handle);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::FromFolder(const fs::path& folder) {
  const fs::path path = folder / "tokenizer.json";
  if (!fs::exists(path))
    throw Fail(ErrorKind::kNotFound, "{}: no such file; download the model's tokenizer.json", path.string());
  const FolderConfig config = ReadFolderConfig(folder);
  TokenizerBuilder builder(Load(path, config));
  const auto named = [&](const char* name) -> std::optional<TokenId> {
    const std::string* token = config.Special(name);
    return token ? builder.tokenizer().Find(*token) : std::nullopt;
  };
  const std::optional<TokenId> bos = named("bos_token"), eos = named("eos_token");
  builder.SetBos(bos ? bos : config.bos);
  // Explicit flags win over the post-processor of tokenizer.json, as transformers has it.
  if (config.add_bos || config.add_eos) {
    std::vector<TokenId> prefix, suffix;
    if (config.add_bos.value_or(false) && bos) prefix.push_back(*bos);
    if (config.add_eos.value_or(false) && eos) suffix.push_back(*eos);
    builder.SetAffixes(prefix, suffix);
  }
  builder.AddEnd(eos);
  for (const TokenId end : config.ends) builder.AddEnd(end);
  builder.AddWellKnownEnds();
  return builder.Finish();
}

}  // namespace pd
