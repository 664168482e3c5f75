// GGUF vocabularies of scored pieces: small ones here, a published one in gemma3_long_test.cc.
#include "tests/text/llama_cpp_goldens.h"

#include "text/text_stream.h"

namespace pd {
namespace {

class LlamaCppGoldens : public testing::TestWithParam<const char*> {};

TEST_P(LlamaCppGoldens, IdsAreLlamaCpps) { ExpectLlamaCpp(*GgufTokenizer(GetParam()), GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, LlamaCppGoldens, testing::Values("sentence_piece", "gemma", "tied"));

// Where no piece is matched whole: U+2581 in a text comes back as the space that it stands for, and what
// follows such a piece has a space before it.
TEST(LlamaCppGolden, TextComesBack) {
  for (const char* name : {"sentence_piece", "gemma"}) {
    const auto tokenizer = GgufTokenizer(name);
    for (const std::string& line : GoldenLines()) {
      if (line.find("▁") != std::string::npos || line.find_first_of("<[") != std::string::npos) continue;
      const auto ids = tokenizer->Encode(line, {.add_special = false});
      ASSERT_EQ(tokenizer->Decode(ids, false), line) << name;
      TextStream stream(tokenizer, {.skip_special = false, .stops = {}});
      std::string streamed;
      for (const TokenId id : ids) streamed += stream.Push(id);
      ASSERT_EQ(streamed + stream.Flush(), line) << name;
    }
  }
}

TEST(LlamaCppGolden, DefaultModel) {
  const char* path = std::getenv("PD_TEST_MODEL");
  if (!path || !std::filesystem::exists(path))
    GTEST_SKIP() << "the default model is not here; ./dev fetches it";
  // Line 1762 has U+001E and U+001D, which llama.cpp counts as white space, and Hugging Face's tokenizers and
  // the expression as GPT-2 wrote it do not.
  ExpectLlamaCpp(*Tokenizer::FromGguf(*GgufFile::Open(path)), "smollm2", {.known = {1762}});
}

}  // namespace
}  // namespace pd
