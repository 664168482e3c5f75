// JSON values as they are written, where no parsed value would do: a number may have any number of digits.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace pd::cli {

// Where the value of `key` stands in `object`, the text of a JSON object; nullopt without one. Text that is
// no JSON gives any part of it, or nullopt: it is for a parser to judge.
std::optional<std::string_view> FindRawValue(std::string_view object, std::string_view key);

// `value` with a 0 in place of each number, padded to its length: JSON if and only if `value` is, whatever
// the size of its numbers.
std::string WithoutNumbers(std::string_view value);

}  // namespace pd::cli
