// The published Gemma 3 270M (Q4_K_M), which ./dev check fetches beside the default model.
#include "base/error.h"
#include "tests/text/llama_cpp_goldens.h"

namespace pd {
namespace {

std::shared_ptr<const GgufFile> Gemma3() {
  const char* beside = std::getenv("PD_TEST_MODEL");
  if (!beside) return nullptr;
  const auto path = std::filesystem::path(beside).parent_path() / "gemma-3-270m-q4_k_m.gguf";
  return std::filesystem::exists(path) ? GgufFile::Open(path) : nullptr;
}

TEST(Gemma3, IdsAreLlamaCpps) {
  const auto file = Gemma3();
  if (!file)
    GTEST_SKIP() << "gemma-3-270m-q4_k_m.gguf is not beside the default model; ./dev check fetches it";
  const auto tokenizer = Tokenizer::FromGguf(*file);
  EXPECT_EQ(tokenizer->vocab_size(), 262144);
  EXPECT_EQ(tokenizer->bos(), 2);
  EXPECT_EQ(tokenizer->end_ids(), (std::vector<TokenId>{1, 106}));  // <eos>, <end_of_turn>
  EXPECT_EQ(tokenizer->Encode("a  b"), (std::vector<TokenId>{2, 236746, 138, 236763}));
  ExpectLlamaCpp(*tokenizer, "gemma3", {.not_control = "</s>"});  // an HTML tag here
}

}  // namespace
}  // namespace pd
