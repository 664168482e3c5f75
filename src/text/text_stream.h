// Text of tokens that arrive one by one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace pd {

struct TextStreamOptions {
  bool skip_special = true;
  // The tokens go on where a prompt ended: SentencePiece's leading space is text. False: the text begins
  // here, and the deltas joined are what Tokenizer::Decode gives for valid UTF-8.
  bool continues = false;
  // The text ends before the first of these to be complete. No empty ones. Throws kBadRequest.
  std::vector<std::string> stops;
};

// Each delta is whole characters. Text that may be the beginning of a stop string is held back until it is
// decided. A delta is often empty: the caller must not pass an empty one on, since some clients take it for
// the end. Bytes that are not UTF-8 become U+FFFD, once for each piece that could have begun a character (of
// a run of byte tokens with an invalid byte in it, Hugging Face's decode makes every byte one). Time is
// linear in tokens and text. One thread's.
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const Tokenizer> tokenizer, TextStreamOptions options = {});

  std::string Push(TokenId id);
  // The end: what was held back, and U+FFFD for half a character. After it, and after a stop string, nothing
  // more comes.
  std::string Flush();

  bool stopped() const { return stops_.found() >= 0; }
  int stop_index() const { return stops_.found(); }  // in options.stops; -1: none yet

 private:
  std::string Emit(std::string text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool first_;      // no token has added to the text yet
  int strip_left_;  // leading characters that may still be dropped
  bool ended_ = false;
  Utf8Assembler characters_;
  StopStrings stops_;
};

}  // namespace pd
