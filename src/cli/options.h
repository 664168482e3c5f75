// Values of flags, read strictly: all of the text is the value, or an error names the flag.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/rows.h"

namespace pd::cli {

// What a number may be. Both ends count, but for `above`: then min itself does not.
struct Range {
  double min, max;
  bool above = false;
};

// Whole numbers are decimal and without a fraction. All throw kBadRequest, naming `flag`.
int64_t ParseInteger(const std::string& flag, const std::string& text, int64_t min, int64_t max);
float ParseNumber(const std::string& flag, const std::string& text, Range range);
std::pair<TokenId, float> ParseBias(const std::string& flag, const std::string& text);  // "17:-2.5"
// "1,2,3": commas, spaces and newlines separate; anything else throws kBadRequest.
std::vector<TokenId> ParseIds(const std::string& flag, const std::string& text);

// Flags whose value goes to `target`, which keeps what it holds when the flag is absent.
CLI::Option* AddInteger(CLI::App& app, const std::string& flags, int& target, Range range,
                        const std::string& help);
CLI::Option* AddNumber(CLI::App& app, const std::string& flags, float& target, Range range,
                       const std::string& help);

}  // namespace pd::cli
