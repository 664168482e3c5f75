// tokenizer.model alone, against transformers' AutoTokenizer: folders of tools/make_sentencepiece_goldens.py.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/temp_folder.h"
#include "tests/text/goldens.h"

namespace pd {
namespace {

// Lines of one unit many times over, whose pieces in another order have the same score: SentencePiece, the
// tokenizers library behind the goldens and the version of it used here each take another order.
bool IsTied(std::string_view name, size_t line) {
  return (name == "sp_unigram" && line == 2584) ||
         (name == "sp_unigram_bytes" && (line == 2576 || line == 2596));
}

class SentencePiece : public testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, IdsAreAutoTokenizers) {
  const auto tokenizer = FolderTokenizer(GetParam());
  const std::string bytes = ReadTextFile(TextData() / GetParam() / "transformers.bin");
  const std::vector<std::string>& lines = GoldenLines();
  std::vector<uint32_t> digests(bytes.size() / sizeof(uint32_t));
  std::memcpy(digests.data(), bytes.data(), digests.size() * sizeof(uint32_t));
  ASSERT_EQ(digests.size(), 2 * lines.size());
  int wrong = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (IsTied(GetParam(), i)) continue;
    const auto full = tokenizer->Encode(lines[i]), bare = tokenizer->EncodeChat(lines[i]);
    if (Fold(Bytes(full)) == digests[2 * i] && Fold(Bytes(bare)) == digests[2 * i + 1]) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << "line " << i << ": " << lines[i] << "\n" << testing::PrintToString(full);
  }
  EXPECT_EQ(wrong, 0) << "of " << lines.size() << " lines";
}

INSTANTIATE_TEST_SUITE_P(All, SentencePiece,
                         testing::Values("sp_llama", "sp_llama_legacy", "sp_bpe", "sp_bpe_bare", "sp_unigram",
                                         "sp_unigram_bytes"));

std::string ErrorOf(const std::string& model, ErrorKind kind) {
  const test::TempFolder folder;
  folder.Write("tokenizer.model", model);
  try {
    Tokenizer::FromFolder(folder.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(SentencePieceFile, OneThatIsNoModel) {
  const std::string whole = ReadTextFile(TextData() / "sp_bpe" / "tokenizer.model");
  for (const std::string& bad : {std::string(), std::string("hello"), whole.substr(0, whole.size() / 2)})
    EXPECT_NE(ErrorOf(bad, ErrorKind::kCorruptFile).find("tokenizer.model"), std::string::npos);
  EXPECT_NE(ErrorOf("{\"version\": \"1.0\"}", ErrorKind::kUnsupported).find("rename it"), std::string::npos);
}

}  // namespace
}  // namespace pd
