// Finishes a tokenizer that is being loaded: what goes around a text, and what ends one.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "text/ffi_handles.h"
#include "text/tokenizer.h"

namespace pd {

// One loader's, for the time of the load.
class TokenizerBuilder {
 public:
  explicit TokenizerBuilder(TokenizerHandle handle) : tokenizer_(new Tokenizer(handle.release())) {}

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  void SetBos(std::optional<TokenId> bos) { tokenizer_->bos_ = bos; }
  // Replaces what tokenizer.json's post-processor says.
  void SetAffixes(std::vector<TokenId> prefix, std::vector<TokenId> suffix);
  void AddEnd(std::optional<TokenId> id);
  // Adds the tokens that are known to end a turn whatever the configuration says, where the vocabulary has
  // them as added tokens.
  void AddWellKnownEnds();
  std::shared_ptr<const Tokenizer> Finish();

 private:
  // The token where it is of this kind or a more special one.
  std::optional<TokenId> FindOfKind(std::string_view token, PdTextTokenKind least) const;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace pd
