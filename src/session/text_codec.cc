#include "session/text_codec.h"

#include "base/error.h"
#include "text/chat_template.h"

namespace pd {
namespace {

// A folder may be named by its config.json.
std::filesystem::path FolderOf(const ModelSource& model) {
  return std::filesystem::is_directory(model.path) ? model.path : model.path.parent_path();
}

}  // namespace

std::shared_ptr<const Tokenizer> OpenTokenizer(const ModelSource& model) {
  return model.gguf ? Tokenizer::FromGguf(*model.gguf) : Tokenizer::FromFolder(FolderOf(model));
}

TextCodec::TextCodec(const ModelSource& model)
    : name_(model.path.string()), tokenizer_(OpenTokenizer(model)) {
  try {
    chat_ = model.gguf ? ChatTemplate::FromGguf(*model.gguf) : ChatTemplate::FromFolder(FolderOf(model));
  } catch (const Error&) {
    chat_error_ = std::current_exception();
  }
}

void TextCodec::RequireChatTemplate() const {
  if (chat_error_) std::rethrow_exception(chat_error_);
  if (!chat_) throw Fail(ErrorKind::kUnsupported, "{} has no chat template", name_);
}

Prompt TextCodec::Chat(const ChatInput& input) const {
  RequireChatTemplate();
  return {tokenizer_->EncodeChat(chat_->Render(input)), false};
}

Prompt TextCodec::Chat(const std::string& user, const std::string& system) const {
  ChatInput input;
  if (!system.empty()) input.messages.push_back({{"role", "system"}, {"content", system}});
  input.messages.push_back({{"role", "user"}, {"content", user}});
  return Chat(input);
}

Prompt TextCodec::Plain(std::string_view text) const { return {tokenizer_->Encode(text), true}; }

std::string TextCodec::Piece(TokenId id) const { return tokenizer_->Piece(id, false, false).bytes; }

}  // namespace pd
