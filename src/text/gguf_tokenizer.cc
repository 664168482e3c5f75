// Tokenizer::FromGguf.
#include <algorithm>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/tokenizer_builder.h"

namespace pd {
namespace {

constexpr std::string_view kAddsBos[] = {"llama3", "llama-v3", "llama-bpe", "falcon3", "tekken"};

std::vector<PdTextView> Views(const std::vector<std::string>& strings) {
  std::vector<PdTextView> views;
  views.reserve(strings.size());
  for (const std::string& text : strings) views.push_back(FfiView(text));
  return views;
}

// A special token's id. An id outside the vocabulary names no token: converters write -1, in whatever width,
// for one that the model does not have.
std::optional<TokenId> Id(const GgufFile& file, const char* key, size_t vocab) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end() || std::holds_alternative<GgufUnusable>(found->second))
    return std::nullopt;
  const int64_t id = file.Get<int64_t>(key);
  return id >= 0 && size_t(id) < vocab ? std::optional(TokenId(id)) : std::nullopt;
}

// One score per token, written as floats or as integers.
std::vector<float> Scores(const GgufFile& file, size_t count) {
  constexpr const char* kKey = "tokenizer.ggml.scores";
  const auto found = file.metadata().find(kKey);
  std::vector<float> scores;
  if (found != file.metadata().end() && std::holds_alternative<std::vector<int64_t>>(found->second)) {
    const auto& integers = std::get<std::vector<int64_t>>(found->second);
    scores.assign(integers.begin(), integers.end());
  } else {
    const auto& numbers = file.Get<std::vector<double>>(kKey);
    scores.assign(numbers.begin(), numbers.end());
  }
  if (scores.size() < count)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} has {} entries for {} tokens; convert the model again",
               file.where(), kKey, scores.size(), count);
  scores.resize(count);
  return scores;
}

std::vector<int32_t> Types(const GgufFile& file, size_t count) {
  const auto* types = file.Find<std::vector<int64_t>>("tokenizer.ggml.token_type");
  if (!types) return {};
  if (types->size() < count)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: tokenizer.ggml.token_type has {} entries for {} tokens; convert the model again",
               file.where(), types->size(), count);
  return {types->begin(), types->begin() + ptrdiff_t(count)};
}

// What only one of the two kinds of vocabulary needs is not looked at for the other.
TokenizerHandle Load(const GgufFile& file, bool sentence_piece) {
  const auto& tokens = file.Get<std::vector<std::string>>("tokenizer.ggml.tokens");
  const std::vector<PdTextView> token_views = Views(tokens);
  const std::vector<int32_t> types = Types(file, tokens.size());
  std::vector<float> scores;
  std::vector<PdTextView> merges;
  PdTextGguf source{};
  source.sentence_piece = sentence_piece;
  if (sentence_piece) {
    const bool* prefix = file.Find<bool>("tokenizer.ggml.add_space_prefix");
    const bool* collapse = file.Find<bool>("tokenizer.ggml.remove_extra_whitespaces");
    if (collapse && *collapse)
      throw Fail(ErrorKind::kUnsupported,
                 "{}: tokenizer.ggml.remove_extra_whitespaces is true, which is not implemented; use the "
                 "model's Hugging Face folder",
                 file.where());
    const std::optional<TokenId> unknown = Id(file, "tokenizer.ggml.unknown_token_id", tokens.size());
    source.add_space_prefix = prefix ? *prefix : true;
    source.has_unknown = unknown.has_value();
    source.unknown = uint32_t(unknown.value_or(0));
    scores = Scores(file, tokens.size());
  } else {
    if (!file.metadata().contains("tokenizer.ggml.pre"))
      throw Fail(ErrorKind::kUnsupported,
                 "{}: tokenizer.ggml.pre is missing, so how the text was split is unknown; convert the model "
                 "again",
                 file.where());
    source.pre = FfiView(file.Get<std::string>("tokenizer.ggml.pre"));
    merges = Views(file.Get<std::vector<std::string>>("tokenizer.ggml.merges"));
  }
  source.tokens = {token_views.data(), token_views.size()};
  source.types = {types.data(), types.size()};
  source.scores = {scores.data(), scores.size()};
  source.merges = {merges.data(), merges.size()};
  PdTokenizer* handle = nullptr;
  FfiBytes error;
  const int32_t status = pd_text_tokenizer_from_gguf(&source, &handle, &error);
  if (status != 0)
    throw FfiError(
        status, error, file.where(),
        status == kPdTextCorrupt ? "convert the model again" : "use the model's Hugging Face folder");
  return TokenizerHandle(handle);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::FromGguf(const GgufFile& file) {
  const auto& model = file.Get<std::string>("tokenizer.ggml.model");
  const bool sentence_piece = model == "llama";
  if (!sentence_piece && model != "gpt2")
    throw Fail(ErrorKind::kUnsupported,
               "{}: tokenizer.ggml.model is \"{}\", this build reads \"gpt2\" and \"llama\"; use the model's "
               "Hugging Face folder",
               file.where(), model);
  TokenizerBuilder builder(Load(file, sentence_piece));
  const size_t vocab = file.Get<std::vector<std::string>>("tokenizer.ggml.tokens").size();
  const std::optional<TokenId> bos = Id(file, "tokenizer.ggml.bos_token_id", vocab);
  const std::optional<TokenId> eos = Id(file, "tokenizer.ggml.eos_token_id", vocab);
  builder.SetBos(bos);
  // Files that do not say: SentencePiece vocabularies begin with BOS, and so do those split in these ways.
  bool by_default = sentence_piece;
  if (!sentence_piece) {
    const auto& pre = file.Get<std::string>("tokenizer.ggml.pre");
    by_default = std::find(std::begin(kAddsBos), std::end(kAddsBos), pre) != std::end(kAddsBos);
  }
  const bool* add_bos = file.Find<bool>("tokenizer.ggml.add_bos_token");
  const bool* add_eos = file.Find<bool>("tokenizer.ggml.add_eos_token");
  std::vector<TokenId> prefix, suffix;
  if ((add_bos ? *add_bos : by_default) && bos) prefix.push_back(*bos);
  if (add_eos && *add_eos && eos) suffix.push_back(*eos);
  builder.SetAffixes(prefix, suffix);

  builder.AddEnd(eos);
  builder.AddEnd(Id(file, "tokenizer.ggml.eot_token_id", vocab));
  builder.AddEnd(Id(file, "tokenizer.ggml.eom_token_id", vocab));
  builder.AddWellKnownEnds();
  return builder.Finish();
}

}  // namespace pd
