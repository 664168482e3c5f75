#include "text/text_stream.h"

namespace pd {

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, TextStreamOptions options)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(options.skip_special),
      first_(!options.continues),
      strip_left_(options.continues ? 0 : tokenizer_->start().strip_count),
      stops_(std::move(options.stops)) {}

std::string TextStream::Push(TokenId id) {
  if (ended_ || stopped()) return "";
  const TokenPiece piece = tokenizer_->Piece(id, skip_special_, first_);
  if (!piece.present) return "";
  std::string text;
  if (tokenizer_->start().join_with_space && !first_) characters_.Push(" ", text);
  first_ = false;
  characters_.Push(piece.bytes, text);
  return Emit(std::move(text));
}

std::string TextStream::Flush() {
  if (ended_ || stopped()) return "";
  ended_ = true;
  std::string text;
  characters_.Flush(text);
  std::string out = Emit(std::move(text));
  if (!stopped()) out += stops_.Flush();
  return out;
}

std::string TextStream::Emit(std::string text) {
  const std::string& strip = tokenizer_->start().strip;
  size_t from = 0;
  while (strip_left_ > 0 && from < text.size()) {
    const bool strips = text.compare(from, strip.size(), strip) == 0;
    strip_left_ = strips ? strip_left_ - 1 : 0;
    if (strips) from += strip.size();
  }
  return stops_.Push(std::string_view(text).substr(from));
}

}  // namespace pd
