// The C ABI of the Rust crate in crates/text. Only this folder includes it; the classes beside it own what
// it hands out.
//
// Handles are immutable once made: any thread may use one, several at a time. Every function that returns
// int32_t returns 0, or a PdTextStatus with one line of text in `error`. Buffers handed out are freed with
// the function for their type; a zeroed buffer may be freed too. Views and arrays are read during the call
// only.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

struct PdTokenizer;
struct PdTemplate;

enum PdTextStatus : int32_t {
  kPdTextBadRequest = 1,
  kPdTextUnsupported = 2,
  kPdTextCorrupt = 3,
  kPdTextInternal = 4,  // a bug in the crate, or in a library that it uses
};

enum PdTextTokenKind : int32_t { kPdTextOrdinary = 0, kPdTextAdded = 1, kPdTextSpecial = 2 };

struct PdTextBytes {
  char* data;
  size_t size, capacity;
};
struct PdTextIds {
  uint32_t* data;
  size_t size, capacity;
};
struct PdTextView {
  const char* data;
  size_t size;
};
struct PdTextViews {
  const PdTextView* data;
  size_t size;
};
struct PdTextIdArray {
  const uint32_t* data;
  size_t size;
};
struct PdTextTypes {
  const int32_t* data;
  size_t size;
};
struct PdTextScores {
  const float* data;
  size_t size;
};

// A special token as a folder's files give it. Without `flagged` it is a string, and the flags do not count.
struct PdTextAddedToken {
  PdTextView content;
  uint32_t id;  // of added tokens only
  bool flagged, special, single_word, lstrip, rstrip, normalized;
};
struct PdTextAddedTokens {
  const PdTextAddedToken* data;
  size_t size;
};
struct PdTextNamedToken {
  PdTextView name;  // "bos_token"
  bool none;        // null: this model has none, whatever the class's default
  PdTextAddedToken token;
};
struct PdTextNamedTokens {
  const PdTextNamedToken* data;
  size_t size;
};

// The classes of transformers that read no more than vocabulary, merges and post-processor from
// tokenizer.json.
enum PdTextClass : int32_t {
  kPdTextAsWritten = 0,  // any other: the file as it is
  kPdTextLlama = 1,
  kPdTextGemma = 2,
  kPdTextQwen2 = 3,
  kPdTextGpt2 = 4,
};

// What the files beside tokenizer.json say.
struct PdTextFolder {
  PdTextClass cls;
  bool has_prefix_space, prefix_space;  // "add_prefix_space"
  bool has_legacy, legacy;
  bool add_bos, add_eos;  // heeded without tokenizer.json only, which has a post-processor
  bool has_decoder;  // `added` is "added_tokens_decoder"; else added_tokens.json, after tokenizer.json's own
  PdTextAddedTokens added;  // with ids
  PdTextNamedTokens named;
  PdTextAddedTokens extra;  // "extra_special_tokens" or "additional_special_tokens"
};

// The vocabulary of a GGUF file. Token types are GGUF's.
struct PdTextGguf {
  bool sentence_piece;  // tokenizer.ggml.model is llama, else gpt2
  bool add_space_prefix, has_unknown;
  uint32_t unknown;
  PdTextView pre;
  PdTextViews tokens;
  PdTextTypes types;    // empty, or one per token
  PdTextScores scores;  // empty, or one per token
  PdTextViews merges;
};

// How a text differs at its start from its tokens' bytes joined.
struct PdTextStart {
  uint32_t strip;        // code point
  uint32_t strip_count;  // that many of them are dropped at most
  bool join_with_space;  // a space between tokens
};

// Broken-down local time: month and day count from 1.
struct PdTextClock {
  int32_t year;
  uint32_t month, day, hour, minute, second;
};

void pd_text_bytes_free(PdTextBytes* buffer);
void pd_text_ids_free(PdTextIds* buffer);

int32_t pd_text_tokenizer_from_json(PdTextView json, const PdTextFolder* folder, PdTokenizer** out,
                                    PdTextBytes* error);
int32_t pd_text_tokenizer_from_sentencepiece(PdTextView model, const PdTextFolder* folder, PdTokenizer** out,
                                             PdTextBytes* error);
int32_t pd_text_tokenizer_from_gguf(const PdTextGguf* source, PdTokenizer** out, PdTextBytes* error);
void pd_text_tokenizer_free(PdTokenizer* tokenizer);

// What the post-processor of tokenizer.json puts before and after a text.
void pd_text_tokenizer_affixes(const PdTokenizer* tokenizer, PdTextIds* prefix, PdTextIds* suffix);
// The text alone, nothing before or after it.
int32_t pd_text_tokenizer_encode(const PdTokenizer* tokenizer, PdTextView text, bool parse_special,
                                 PdTextIds* out, PdTextBytes* error);
// Ids without a token add nothing.
int32_t pd_text_tokenizer_decode(const PdTokenizer* tokenizer, PdTextIdArray ids, bool skip_special,
                                 PdTextBytes* out, PdTextBytes* error);
uint32_t pd_text_tokenizer_size(const PdTokenizer* tokenizer);  // one more than the largest id
bool pd_text_tokenizer_id(const PdTokenizer* tokenizer, PdTextView token, uint32_t* id);
bool pd_text_tokenizer_token(const PdTokenizer* tokenizer, uint32_t id, PdTextBytes* spelling,
                             PdTextTokenKind* kind);
// The bytes that one token adds to a text; false when it adds nothing. `first`: nothing stands before it.
bool pd_text_tokenizer_piece(const PdTokenizer* tokenizer, uint32_t id, bool skip_special, bool first,
                             PdTextBytes* out);
PdTextStart pd_text_tokenizer_start(const PdTokenizer* tokenizer);

int32_t pd_text_template_new(PdTextView name, PdTextView source, PdTemplate** out, PdTextBytes* error);
void pd_text_template_free(PdTemplate* tmpl);
// `arguments`: a JSON object, a variable each.
int32_t pd_text_template_render(const PdTemplate* tmpl, PdTextView arguments, PdTextClock clock,
                                PdTextBytes* out, PdTextBytes* error);

}  // extern "C"
