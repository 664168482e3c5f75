// Text to token ids and back, for a Hugging Face folder or a GGUF file.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/rows.h"

struct PdTokenizer;

namespace pd {

class GgufFile;

struct EncodeOptions {
  // What the file puts around a raw text: the beginning of a sequence (BOS) before it, for a few models an
  // end after it. A text that spells it has it twice, as with Hugging Face's and llama.cpp's tokenizers.
  bool add_special = true;
  // A special token that the text spells, such as "<|im_end|>", is that token; false: it is plain text.
  bool parse_special = true;
};

// What one token adds to a text.
struct TokenPiece {
  std::string bytes;  // perhaps half a character
  bool present;       // false: a special token that is skipped, or an id without a token; adds nothing
};

// How a text's start differs from its tokens' bytes joined, as SentencePiece's leading space does.
struct TextStart {
  std::string strip;     // one character, which is dropped at the start,
  int strip_count;       // at most this often
  bool join_with_space;  // the tokenizer puts a space between tokens
};

// Immutable; any thread may use it.
class Tokenizer {
 public:
  // Reads tokenizer.json, or where that is missing tokenizer.model, as transformers 5 does, with what
  // tokenizer_config.json, special_tokens_map.json and added_tokens.json say about special tokens, and
  // generation_config.json and config.json about ends. Throws kNotFound, kCorruptFile, kUnsupported.
  static std::shared_ptr<const Tokenizer> FromFolder(const std::filesystem::path& folder);
  // From the metadata tokenizer.ggml.*: byte-level BPE ("gpt2") with one of the pre-tokenizers that the
  // crate knows, or SentencePiece's pieces with scores and byte fallback ("llama"). Throws kCorruptFile,
  // kUnsupported.
  static std::shared_ptr<const Tokenizer> FromGguf(const GgufFile& file);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // A raw text. Bytes that are not UTF-8 are read as U+FFFD, as Python's errors="replace" reads them. Throws
  // kBadRequest for a text above kMaxTextBytes.
  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options = {}) const;
  // A rendered chat: its template has put all special tokens there that belong there, and no other is added.
  std::vector<TokenId> EncodeChat(std::string_view text) const;
  // Hugging Face's decode. Throws kBadRequest for an id outside [0, vocab_size()). An id inside it that has
  // no token (a model's embedding may be padded) adds nothing.
  std::string Decode(std::span<const TokenId> ids, bool skip_special = true) const;

  int vocab_size() const;  // one more than the largest id
  std::optional<TokenId> bos() const { return bos_; }
  // Every token that ends a model's turn, from all places that name one; ascending.
  const std::vector<TokenId>& end_ids() const { return end_ids_; }
  bool IsEnd(TokenId id) const;
  std::optional<TokenId> Find(std::string_view token) const;  // by its spelling in the vocabulary
  std::optional<std::string> Spelling(TokenId id) const;

  TokenPiece Piece(TokenId id, bool skip_special, bool first) const;
  const TextStart& start() const { return start_; }

  static constexpr size_t kMaxTextBytes = size_t(16) << 20;

 private:
  friend class TokenizerBuilder;
  explicit Tokenizer(PdTokenizer* handle);

  PdTokenizer* handle_;  // owned
  std::vector<TokenId> prefix_, suffix_;
  std::optional<TokenId> bos_;
  std::vector<TokenId> end_ids_;
  TextStart start_;
};

}  // namespace pd
