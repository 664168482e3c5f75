// Whatever a GGUF file says about its tokenizer, it is one whose tokens can be told, or an Error. What it
// encodes, it can decode, whole and token by token alike.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const auto bytes = std::make_shared<std::vector<std::byte>>(begin, begin + size);
  try {
    const auto tokenizer = pd::Tokenizer::FromGguf(*pd::GgufFile::Parse(*bytes, bytes, "input"));
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    for (const std::string_view text :
         {std::string_view(" Grüße, 世界! 12345\n\t👩‍👩‍👧 <s></s>"), input}) {
      const std::vector<pd::TokenId> ids = tokenizer->Encode(text);
      for (const pd::TokenId id : ids) PD_CHECK(id >= 0 && id < tokenizer->vocab_size());
      tokenizer->Decode(ids);
      pd::TextStream stream(tokenizer, {});
      for (const pd::TokenId id : ids) stream.Push(id);
      stream.Flush();
    }
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
