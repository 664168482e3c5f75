// Reads tests/data/text, which tools/make_text_goldens.py writes.
#pragma once
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace pd {

inline std::filesystem::path TextData() { return std::filesystem::path(PD_TEST_DATA) / "text"; }

inline const std::vector<std::string>& GoldenLines() {
  static const auto lines = [] {
    const auto path = TextData() / "lines.json";
    return ParseSortedJson(ReadTextFile(path), path.string()).get<std::vector<std::string>>();
  }();
  return lines;
}

// FNV-1a with 64 bits, folded to 32.
inline uint32_t Fold(std::string_view bytes) {
  uint64_t digest = 0xCBF29CE484222325u;
  for (const char byte : bytes) digest = (digest ^ uint8_t(byte)) * 0x100000001B3u;
  return uint32_t(digest >> 32 ^ digest);
}

inline std::string Bytes(const std::vector<TokenId>& ids) {
  std::string bytes(ids.size() * sizeof(TokenId), '\0');
  if (!ids.empty()) std::memcpy(bytes.data(), ids.data(), bytes.size());
  return bytes;
}

// What Hugging Face made of one line.
struct GoldenDigest {
  uint32_t ids;   // of the ids
  uint32_t rest;  // of the decoded texts with and without special tokens, and of the ids that read none
  bool operator==(const GoldenDigest&) const = default;
};

inline std::vector<GoldenDigest> GoldenDigests(const std::string& name) {
  const std::string bytes = ReadTextFile(TextData() / name / "digests.bin");
  std::vector<GoldenDigest> digests(bytes.size() / sizeof(GoldenDigest));
  std::memcpy(digests.data(), bytes.data(), digests.size() * sizeof(GoldenDigest));
  return digests;
}

inline GoldenDigest DigestOf(const Tokenizer& tokenizer, const std::string& line) {
  const std::vector<TokenId> ids = tokenizer.Encode(line, {.add_special = false});
  const std::vector<TokenId> literal = tokenizer.Encode(line, {.add_special = false, .parse_special = false});
  return {Fold(Bytes(ids)), Fold(tokenizer.Decode(ids, false) + '\xff' + tokenizer.Decode(ids, true) +
                                 '\xff' + Bytes(literal))};
}

inline std::shared_ptr<const Tokenizer> FolderTokenizer(const std::string& name) {
  return Tokenizer::FromFolder(TextData() / name);
}

inline std::shared_ptr<const Tokenizer> GgufTokenizer(const std::string& name) {
  return Tokenizer::FromGguf(*GgufFile::Open(TextData() / name / "tokenizer.gguf"));
}

}  // namespace pd
