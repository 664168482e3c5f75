#include "cli/options.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace pd::cli {

int64_t ParseInteger(const std::string& flag, const std::string& text, int64_t min, int64_t max) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max)
    throw Fail(ErrorKind::kBadRequest, "{}: '{}' is not a whole number from {} to {}", flag, text, min, max);
  return value;
}

float ParseNumber(const std::string& flag, const std::string& text, Range range) {
  // strtod reads more than decimal numbers: names, hexadecimal, leading spaces.
  const bool decimal = !text.empty() && text.find_first_not_of("0123456789+-.eE") == std::string::npos;
  char* end = nullptr;
  const double value = decimal ? std::strtod(text.c_str(), &end) : 0;
  const bool whole = decimal && end == text.c_str() + text.size();
  if (!whole || value > range.max || value < range.min || (range.above && value == range.min))
    throw Fail(ErrorKind::kBadRequest, "{}: '{}' is not a number {}", flag, text,
               range.above ? fmt::format("above {} and at most {}", range.min, range.max)
                           : fmt::format("from {} to {}", range.min, range.max));
  return float(value);
}

std::pair<TokenId, float> ParseBias(const std::string& flag, const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw Fail(ErrorKind::kBadRequest, "{}: '{}' is not ID:VALUE, as in 17:-2.5", flag, text);
  return {TokenId(ParseInteger(flag, text.substr(0, colon), 0, INT32_MAX)),
          ParseNumber(flag, text.substr(colon + 1), {-1e6, 1e6})};
}

std::vector<TokenId> ParseIds(const std::string& flag, const std::string& text) {
  constexpr const char* kSeparators = ", \t\r\n";
  std::vector<TokenId> ids;
  for (size_t begin = text.find_first_not_of(kSeparators); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    ids.push_back(TokenId(ParseInteger(flag, text.substr(begin, end - begin), 0, INT32_MAX)));
    begin = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

}  // namespace pd::cli
