#include "text/tokenizer.h"

#include <algorithm>

#include "text/tokenizer_builder.h"
#include "text/utf8.h"

namespace pd {
namespace {

// Tokens that end a turn or a text in published models. Some configurations name only one of theirs.
constexpr std::string_view kEnds[] = {"<|im_end|>",
                                      "<|eot_id|>",
                                      "<|eom_id|>",
                                      "<end_of_turn>",
                                      "<|endoftext|>",
                                      "<|end_of_text|>",
                                      "<|eot|>",
                                      "<|eom|>",
                                      "<|end_of_turn|>",
                                      "<turn|>",
                                      "<end_of_utterance>",
                                      "<｜end▁of▁sentence｜>",
                                      "<|END_OF_TURN_TOKEN|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<eos>",
                                      "<EOT>",
                                      "[EOT]",
                                      "[EOS]"};
// Ends a text where it is a special token; Gemma has it as an HTML tag.
constexpr std::string_view kHtmlOrEnd = "</s>";
// Ends a turn, except where <|return|> does and this one only ends a message.
constexpr std::string_view kEnd = "<|end|>", kReturn = "<|return|>";

std::vector<TokenId> Take(const PdTextIds& ids) { return {ids.data, ids.data + ids.size}; }

}  // namespace

Tokenizer::Tokenizer(PdTokenizer* handle) : handle_(handle) {
  FfiIds prefix, suffix;
  pd_text_tokenizer_affixes(handle_, &prefix, &suffix);
  prefix_ = Take(prefix);
  suffix_ = Take(suffix);
  const PdTextStart start = pd_text_tokenizer_start(handle_);
  start_ = {Utf8(start.strip), int(std::min(start.strip_count, uint32_t(INT32_MAX))), start.join_with_space};
}

Tokenizer::~Tokenizer() { pd_text_tokenizer_free(handle_); }

std::vector<TokenId> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes)
    throw Fail(ErrorKind::kBadRequest, "the text has {} bytes, the limit is {}; shorten it", text.size(),
               kMaxTextBytes);
  FfiIds ids;
  FfiBytes error;
  const int32_t status =
      pd_text_tokenizer_encode(handle_, FfiView(text), options.parse_special, &ids, &error);
  if (status != 0) throw FfiError(status, error, "", "");
  std::vector<TokenId> out = Take(ids);
  if (!options.add_special) return out;
  out.insert(out.begin(), prefix_.begin(), prefix_.end());
  out.insert(out.end(), suffix_.begin(), suffix_.end());
  return out;
}

std::vector<TokenId> Tokenizer::EncodeChat(std::string_view text) const {
  return Encode(text, {.add_special = false});
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  const int size = vocab_size();
  for (const TokenId id : ids)
    if (id < 0 || id >= size)
      throw Fail(ErrorKind::kBadRequest, "token id {} is outside the vocabulary; ids are 0 to {}", id,
                 size - 1);
  FfiBytes text, error;
  const PdTextIdArray array{reinterpret_cast<const uint32_t*>(ids.data()), ids.size()};
  const int32_t status = pd_text_tokenizer_decode(handle_, array, skip_special, &text, &error);
  if (status != 0) throw FfiError(status, error, "", "");
  return std::string(text.view());
}

int Tokenizer::vocab_size() const { return int(pd_text_tokenizer_size(handle_)); }

bool Tokenizer::IsEnd(TokenId id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

std::optional<TokenId> Tokenizer::Find(std::string_view token) const {
  uint32_t id = 0;
  if (!pd_text_tokenizer_id(handle_, FfiView(token), &id)) return std::nullopt;
  return TokenId(id);
}

std::optional<std::string> Tokenizer::Spelling(TokenId id) const {
  FfiBytes spelling;
  PdTextTokenKind kind{};
  if (id < 0 || !pd_text_tokenizer_token(handle_, uint32_t(id), &spelling, &kind)) return std::nullopt;
  return std::string(spelling.view());
}

TokenPiece Tokenizer::Piece(TokenId id, bool skip_special, bool first) const {
  FfiBytes bytes;
  const bool present = id >= 0 && pd_text_tokenizer_piece(handle_, uint32_t(id), skip_special, first, &bytes);
  return {std::string(bytes.view()), present};
}

void TokenizerBuilder::SetAffixes(std::vector<TokenId> prefix, std::vector<TokenId> suffix) {
  tokenizer_->prefix_ = std::move(prefix);
  tokenizer_->suffix_ = std::move(suffix);
}

void TokenizerBuilder::AddEnd(std::optional<TokenId> id) {
  if (id) tokenizer_->end_ids_.push_back(*id);
}

std::optional<TokenId> TokenizerBuilder::FindOfKind(std::string_view token, PdTextTokenKind least) const {
  const std::optional<TokenId> id = tokenizer_->Find(token);
  FfiBytes spelling;
  PdTextTokenKind kind = kPdTextOrdinary;
  if (id) pd_text_tokenizer_token(tokenizer_->handle_, uint32_t(*id), &spelling, &kind);
  return kind >= least ? id : std::nullopt;
}

void TokenizerBuilder::AddWellKnownEnds() {
  for (const std::string_view end : kEnds) AddEnd(FindOfKind(end, kPdTextAdded));
  AddEnd(FindOfKind(kHtmlOrEnd, kPdTextSpecial));
  if (!FindOfKind(kReturn, kPdTextAdded)) AddEnd(FindOfKind(kEnd, kPdTextAdded));
}

std::shared_ptr<const Tokenizer> TokenizerBuilder::Finish() {
  std::vector<TokenId>& ends = tokenizer_->end_ids_;
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return std::move(tokenizer_);
}

}  // namespace pd
