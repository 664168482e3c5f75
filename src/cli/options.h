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
// "1,4,16", at least one.
CLI::Option* AddIntegers(CLI::App& app, const std::string& flags, std::vector<int>& target, Range range,
                         const std::string& help);
CLI::Option* AddNumber(CLI::App& app, const std::string& flags, float& target, Range range,
                       const std::string& help);

// A flag that takes one of a few names, the first of which stands for what `target` holds by itself. Any
// other throws kBadRequest with the list of them.
[[noreturn]] void ThrowNoChoice(const std::string& flag, const std::string& text, const std::string& choices);
template <class T>
CLI::Option* AddChoice(CLI::App& app, const std::string& flag, T& target,
                       const std::vector<std::pair<std::string, T>>& choices, const std::string& help) {
  std::string names;
  for (const auto& [name, value] : choices) names += (names.empty() ? "" : "|") + name;
  return app
      .add_option_function<std::string>(
          flag,
          [&target, flag, choices, names](const std::string& text) {
            for (const auto& [name, value] : choices)
              if (name == text) {
                target = value;
                return;
              }
            ThrowNoChoice(flag, text, names);
          },
          help)
      ->type_name(names)
      ->default_str(choices.front().first);
}

}  // namespace pd::cli
