// Against llama.cpp's own ids, which tools/make_llama_cpp_goldens.py writes: two digests for each golden
// line, of the ids and of those that read no special token.
#pragma once
#include <gtest/gtest.h>

#include "tests/text/goldens.h"

namespace pd {

struct LlamaCppDifferences {
  std::vector<size_t> known = {};  // lines on which this tokenizer is meant to differ
  std::string not_control = {};    // a token that llama.cpp takes for a control token, whatever the file says
};

inline void ExpectLlamaCpp(const Tokenizer& tokenizer, const std::string& name,
                           const LlamaCppDifferences& differences = {}) {
  const auto& [known, not_control] = differences;
  const std::string bytes = ReadTextFile(TextData() / name / "llama_cpp.bin");
  const std::vector<std::string>& lines = GoldenLines();
  ASSERT_GE(lines.size(), 2600u);
  std::vector<uint32_t> digests(bytes.size() / sizeof(uint32_t));
  std::memcpy(digests.data(), bytes.data(), digests.size() * sizeof(uint32_t));
  ASSERT_EQ(digests.size(), 2 * lines.size());
  std::vector<size_t> wrong;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto ids = tokenizer.Encode(lines[i], {.add_special = false});
    const auto literal = tokenizer.Encode(lines[i], {.add_special = false, .parse_special = false});
    const bool spells_it = !not_control.empty() && lines[i].find(not_control) != std::string::npos;
    const bool same_literal = spells_it || Fold(Bytes(literal)) == digests[2 * i + 1];
    if (Fold(Bytes(ids)) == digests[2 * i] && same_literal) continue;
    wrong.push_back(i);
    if (wrong.size() <= 5 && std::find(known.begin(), known.end(), i) == known.end())
      ADD_FAILURE() << "line " << i << ": " << lines[i] << "\n" << testing::PrintToString(ids);
  }
  EXPECT_EQ(wrong, known);
}

}  // namespace pd
