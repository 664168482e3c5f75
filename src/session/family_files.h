// Files named FAMILY-DIGEST: a quick look for one before the digest, which reads all weights, is computed.
#pragma once
#include <filesystem>
#include <string>

namespace pd {

inline bool AnyOfFamily(const std::filesystem::path& folder, const std::string& family) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(family + "-")) return true;
  return false;
}

}  // namespace pd
