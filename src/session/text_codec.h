// A model's text: prompts to tokens by its tokenizer and chat template, and tokens to what they spell.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_source.h"
#include "text/tokenizer.h"

namespace pd {

class ChatTemplate;
struct ChatInput;

struct Prompt {
  std::vector<TokenId> ids;
  // The text goes on in the middle of a plain text: a leading space of its first token counts.
  bool continues = false;
};

std::shared_ptr<const Tokenizer> OpenTokenizer(const ModelSource& model);

// Immutable; any thread may use it.
class TextCodec {
 public:
  // Reads what the model's files say about text. Throws what opening a tokenizer throws. A template that is
  // missing or cannot be used is an error of Chat only: plain text needs none.
  explicit TextCodec(const ModelSource& model);

  // Messages as the model's chat template renders them, up to where its answer begins. The template writes
  // every special token, so the tokenizer adds none. A special token that a message spells is that token.
  // Throws kUnsupported without a template or for one that cannot be used, kBadRequest for messages that it
  // rejects.
  Prompt Chat(const ChatInput& input) const;
  Prompt Chat(const std::string& user, const std::string& system = "") const;  // `system`: may be empty
  // Plain text to go on with, behind what the tokenizer puts at the beginning of a sequence.
  Prompt Plain(std::string_view text) const;

  // Throws what Chat would for any messages.
  void RequireChatTemplate() const;
  bool has_chat_template() const { return chat_ || chat_error_; }

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  // What a token adds to a text, as the model spells it: perhaps half a character.
  std::string Piece(TokenId id) const;

 private:
  std::string name_;  // the model's, for messages
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;  // nullptr: none, or chat_error_
  std::exception_ptr chat_error_;
};

}  // namespace pd
