// Values of flags, read strictly: all of the text is the value, or an error names the flag.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/rows.h"

namespace pd::cli {

// Bounds of a number, both included; with `above` min itself is not.
struct Range {
  double min, max;
  bool above = false;
};

// Whole numbers are decimal and without a fraction. All throw kBadRequest, naming `flag`.
int64_t ParseInteger(const std::string& flag, const std::string& text, int64_t min, int64_t max);
float ParseNumber(const std::string& flag, const std::string& text, Range range);
std::pair<TokenId, float> ParseBias(const std::string& flag, const std::string& text);  // "17:-2.5"
// "1,2,3", separated by commas, spaces or newlines.
std::vector<TokenId> ParseIds(const std::string& flag, const std::string& text);

}  // namespace pd::cli
