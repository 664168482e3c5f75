// Ids and decoded text against Hugging Face tokenizers, on every golden line.
#include <gtest/gtest.h>

#include "tests/text/goldens.h"
#include "text/text_stream.h"

namespace pd {
namespace {

struct Source {
  std::string name;
  bool gguf;
};

class TokenizerGoldens : public testing::TestWithParam<Source> {};

void ExpectGoldens(const Tokenizer& tokenizer, const std::string& name) {
  const std::vector<GoldenDigest> digests = GoldenDigests(name);
  const std::vector<std::string>& lines = GoldenLines();
  ASSERT_GE(lines.size(), 2000u);
  ASSERT_EQ(digests.size(), lines.size());
  int wrong = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const GoldenDigest ours = DigestOf(tokenizer, lines[i]);
    if (ours == digests[i] || ++wrong > 5) continue;
    const std::vector<TokenId> ids = tokenizer.Encode(lines[i], {.add_special = false});
    ADD_FAILURE() << "line " << i << ": " << lines[i] << "\n"
                  << (ours.ids == digests[i].ids ? "same ids, other text or literal ids: " : "other ids: ")
                  << testing::PrintToString(ids);
  }
  EXPECT_EQ(wrong, 0) << "of " << lines.size() << " lines";
}

TEST_P(TokenizerGoldens, IdsAndTextEqualHuggingFace) {
  const auto& [name, gguf] = GetParam();
  ExpectGoldens(gguf ? *GgufTokenizer(name) : *FolderTokenizer(name), name);
}

std::vector<Source> Sources() {
  std::vector<Source> sources;
  for (const char* name : {"gpt-2", "default", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o",
                           "deepseek-coder", "deepseek-v3", "sentence_piece", "gemma"}) {
    sources.push_back({name, false});
    // Where pieces score alike, the GGUF file gives llama.cpp's ids (llama_cpp_goldens_test.cc).
    if (std::string_view(name) != "gemma") sources.push_back({name, true});
  }
  sources.push_back({"metaspace", false});
  return sources;
}

std::string Name(const testing::TestParamInfo<Source>& source) {
  std::string name = source.param.name + (source.param.gguf ? "_gguf" : "_folder");
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGoldens, testing::ValuesIn(Sources()), Name);

TEST(TokenizerGolden, DefaultModel) {
  const char* path = std::getenv("PD_TEST_MODEL");
  if (!path || !std::filesystem::exists(path))
    GTEST_SKIP() << "the default model is not here; ./dev fetches it";
  const auto tokenizer = Tokenizer::FromGguf(*GgufFile::Open(path));
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->end_ids(), (std::vector<TokenId>{0, 2}));  // <|endoftext|>, <|im_end|>
  ExpectGoldens(*tokenizer, "smollm2");
}

// Ids at random: their bytes are hardly ever UTF-8.
TEST(TokenizerGolden, RandomIdsDecodeAsHuggingFaceDecodesThem) {
  for (const char* name : {"gpt-2", "sentence_piece"}) {
    const auto tokenizer = FolderTokenizer(name);
    const auto path = TextData() / name / "random.json";
    for (const SortedJson& row : ParseSortedJson(ReadTextFile(path), path.string()))
      EXPECT_EQ(tokenizer->Decode(row["ids"].get<std::vector<TokenId>>(), false),
                row["text"].get<std::string>());
  }
}

std::string Streamed(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& ids, bool skip) {
  TextStream stream(std::move(tokenizer), {.skip_special = skip, .stops = {}});
  std::string text;
  for (const TokenId id : ids) {
    const std::string delta = stream.Push(id);
    EXPECT_TRUE(IsUtf8(delta));
    text += delta;
  }
  return text + stream.Flush();
}

TEST(TokenizerGolden, StreamedTextEqualsDecodedText) {
  for (const char* name : {"gpt-2", "sentence_piece", "gemma", "metaspace"}) {
    const auto tokenizer = FolderTokenizer(name);
    for (const std::string& line : GoldenLines()) {
      const std::vector<TokenId> ids = tokenizer->Encode(line, {.add_special = false});
      for (const bool skip : {false, true})
        ASSERT_EQ(Streamed(tokenizer, ids, skip), tokenizer->Decode(ids, skip)) << name << ": " << line;
    }
  }
}

TEST(TokenizerGolden, StreamedBytesThatAreNoTextEqualDecodedOnes) {
  const auto tokenizer = FolderTokenizer("gpt-2");
  const auto path = TextData() / "gpt-2" / "random.json";
  for (const SortedJson& row : ParseSortedJson(ReadTextFile(path), path.string()))
    EXPECT_EQ(Streamed(tokenizer, row["ids"].get<std::vector<TokenId>>(), false),
              row["text"].get<std::string>());
}

}  // namespace
}  // namespace pd
