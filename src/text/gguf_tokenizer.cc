// Tokenizer::FromGguf.
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

// A special token's id, checked against the vocabulary.
std::optional<TokenId> Id(const GgufFile& file, const char* key, size_t vocab) {
  const int64_t* id = file.Find<int64_t>(key);
  if (!id) return std::nullopt;
  if (*id < 0 || size_t(*id) >= vocab)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} is {}, the vocabulary has {} tokens; download it again",
               file.where(), key, *id, vocab);
  return TokenId(*id);
}

TokenizerHandle Load(const GgufFile& file, bool sentence_piece) {
  const auto& tokens = file.Get<std::vector<std::string>>("tokenizer.ggml.tokens");
  const auto* merges = file.Find<std::vector<std::string>>("tokenizer.ggml.merges");
  const auto* types = file.Find<std::vector<int64_t>>("tokenizer.ggml.token_type");
  const auto* scores = file.Find<std::vector<double>>("tokenizer.ggml.scores");
  const auto* pre = file.Find<std::string>("tokenizer.ggml.pre");
  const auto* architecture = file.Find<std::string>("general.architecture");
  const bool* prefix = file.Find<bool>("tokenizer.ggml.add_space_prefix");
  const bool* collapse = file.Find<bool>("tokenizer.ggml.remove_extra_whitespaces");
  if (types && types->size() != tokens.size())
    throw Fail(ErrorKind::kCorruptFile,
               "{}: tokenizer.ggml.token_type has {} entries for {} tokens; download it again", file.where(),
               types->size(), tokens.size());
  if (!sentence_piece && !merges)
    throw Fail(ErrorKind::kCorruptFile, "{}: tokenizer.ggml.merges is missing; download it again",
               file.where());
  if (!sentence_piece && !pre)
    throw Fail(
        ErrorKind::kUnsupported,
        "{}: tokenizer.ggml.pre is missing, so how the text was split is unknown; convert the model again",
        file.where());
  if (sentence_piece && collapse && *collapse)
    throw Fail(
        ErrorKind::kUnsupported,
        "{}: tokenizer.ggml.remove_extra_whitespaces is true, which is not implemented; use the model's "
        "Hugging Face folder",
        file.where());

  const std::vector<PdTextView> token_views = Views(tokens);
  const std::vector<PdTextView> merge_views = merges ? Views(*merges) : std::vector<PdTextView>();
  const std::vector<int32_t> type_list =
      types ? std::vector<int32_t>(types->begin(), types->end()) : std::vector<int32_t>();
  const std::vector<float> score_list =
      scores ? std::vector<float>(scores->begin(), scores->end()) : std::vector<float>();
  const std::optional<TokenId> unknown = Id(file, "tokenizer.ggml.unknown_token_id", tokens.size());
  PdTextGguf source{};
  source.sentence_piece = sentence_piece;
  source.add_space_prefix = prefix ? *prefix : sentence_piece;
  source.rank_by_position = architecture && architecture->starts_with("gemma");
  source.has_unknown = unknown.has_value();
  source.unknown = uint32_t(unknown.value_or(0));
  const std::string split = pre ? *pre : "";  // must outlive the call below
  source.pre = FfiView(split);
  source.tokens = {token_views.data(), token_views.size()};
  source.types = {type_list.data(), type_list.size()};
  source.scores = {score_list.data(), score_list.size()};
  source.merges = {merge_views.data(), merge_views.size()};
  PdTokenizer* handle = nullptr;
  FfiBytes error;
  const int32_t status = pd_text_tokenizer_from_gguf(&source, &handle, &error);
  if (status != 0)
    throw FfiError(status, error, file.where(),
                   status == kPdTextCorrupt ? "download it again" : "use the model's Hugging Face folder");
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
  const auto* pre = file.Find<std::string>("tokenizer.ggml.pre");
  bool by_default = sentence_piece;
  for (const std::string_view name : kAddsBos)
    if (!sentence_piece && pre && *pre == name) by_default = true;
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
