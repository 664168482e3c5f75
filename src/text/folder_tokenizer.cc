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

PdTextClass ClassNamed(std::string_view name) {
  constexpr std::string_view kFast = "Fast";
  if (name.ends_with(kFast)) name.remove_suffix(kFast.size());
  if (name == "LlamaTokenizer") return kPdTextLlama;
  if (name == "GemmaTokenizer") return kPdTextGemma;
  if (name == "Qwen2Tokenizer") return kPdTextQwen2;
  if (name == "GPT2Tokenizer") return kPdTextGpt2;
  return kPdTextAsWritten;
}

// transformers 5.24's choice: the class that is named, but a model type with a class of its own has that one
// where none is named, and Qwen 2 always, since so many of its files name another.
PdTextClass ClassOf(const FolderConfig& config) {
  const bool qwen2 = config.model_type == "qwen2";
  if (!config.tokenizer_class.empty() && !qwen2) return ClassNamed(config.tokenizer_class);
  if (qwen2 || config.model_type == "qwen3") return kPdTextQwen2;
  if (config.model_type == "gemma3" || config.model_type == "gemma3_text") return kPdTextGemma;
  return kPdTextAsWritten;
}

PdTextAddedToken AbiToken(const std::string& content, const std::optional<TokenFlags>& flags, TokenId id) {
  PdTextAddedToken token{};
  token.content = FfiView(content);
  token.id = uint32_t(id);
  token.flagged = flags.has_value();
  if (flags) {
    token.special = flags->special;
    token.single_word = flags->single_word;
    token.lstrip = flags->lstrip;
    token.rstrip = flags->rstrip;
    token.normalized = flags->normalized;
  }
  return token;
}

// From tokenizer.json, or from tokenizer.model (`sentencepiece`).
TokenizerHandle Load(const fs::path& path, bool sentencepiece, const FolderConfig& config) {
  const std::string file = ReadTextFile(path, kMaxFile);
  std::vector<PdTextAddedToken> added, extra;
  std::vector<PdTextNamedToken> named;
  for (const AddedToken& token : config.added)
    added.push_back(AbiToken(token.content, token.flags, token.id));
  for (const GivenToken& token : config.extra) extra.push_back(AbiToken(token.content, token.flags, 0));
  for (const NamedToken& name : config.named) {
    PdTextNamedToken token{FfiView(name.name), !name.token, {}};
    if (name.token) token.token = AbiToken(name.token->content, name.token->flags, 0);
    named.push_back(token);
  }
  PdTextFolder folder{};
  folder.cls = ClassOf(config);
  folder.has_prefix_space = config.prefix_space.has_value();
  folder.prefix_space = config.prefix_space.value_or(false);
  folder.has_legacy = config.legacy.has_value();
  folder.legacy = config.legacy.value_or(false);
  folder.add_bos = config.add_bos.value_or(false);
  folder.add_eos = config.add_eos.value_or(false);
  folder.has_decoder = config.has_decoder;
  folder.added = {added.data(), added.size()};
  folder.named = {named.data(), named.size()};
  folder.extra = {extra.data(), extra.size()};
  PdTokenizer* handle = nullptr;
  FfiBytes error;
  const auto from = sentencepiece ? pd_text_tokenizer_from_sentencepiece : pd_text_tokenizer_from_json;
  const int32_t status = from(FfiView(file), &folder, &handle, &error);
  if (status != 0)
    throw FfiError(status, error, path.string(),
                   status == kPdTextCorrupt ? "download it again" : "use a GGUF file of the model");
  return TokenizerHandle(handle);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::FromFolder(const fs::path& folder) {
  const fs::path json = folder / "tokenizer.json", model = folder / "tokenizer.model";
  const bool sentencepiece = !fs::exists(json);
  if (sentencepiece && !fs::exists(model))
    throw Fail(ErrorKind::kNotFound, "{}: no tokenizer.json and no tokenizer.model; download the model's",
               folder.string());
  const FolderConfig config = ReadFolderConfig(folder);
  TokenizerBuilder builder(Load(sentencepiece ? model : json, sentencepiece, config));
  const auto named = [&](const char* name) -> std::optional<TokenId> {
    const std::string* token = config.Special(name);
    return token ? builder.tokenizer().Find(*token) : std::nullopt;
  };
  const auto known = [&](TokenId id) { return id < builder.tokenizer().vocab_size(); };
  const std::optional<TokenId> bos = named("bos_token");
  builder.SetBos(bos || !config.bos || !known(*config.bos) ? bos : config.bos);
  builder.AddEnd(named("eos_token"));
  for (const TokenId end : config.ends)
    if (known(end)) builder.AddEnd(end);
  builder.AddWellKnownEnds();
  return builder.Finish();
}

}  // namespace pd
