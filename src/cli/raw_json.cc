#include "cli/raw_json.h"

#include <algorithm>

#include "base/json.h"

namespace pd::cli {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kNumber = "+-.0123456789Ee";  // what numbers are made of

// Reads a text from left to right. At its end everything is empty or false.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  bool done() const { return at_ == text_.size(); }
  char Next() { return text_[at_++]; }
  void SkipSpace() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }

  bool Skip(char c) {
    SkipSpace();
    const bool there = !done() && text_[at_] == c;
    at_ += there;
    return there;
  }

  // With its quotes.
  std::string_view String() {
    const size_t begin = at_;
    if (!Skip('"')) return {};
    while (!done()) {
      const char c = Next();
      if (c == '"') break;
      if (c == '\\' && !done()) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  // Without the space before it.
  std::string_view Value() {
    SkipSpace();
    const size_t begin = at_;
    for (int depth = 0; !done();) {
      const char c = text_[at_];
      if (c == '"') {
        String();
      } else {
        const bool closes = c == '}' || c == ']';
        if (depth == 0 && (closes || c == ',' || kSpace.find(c) != std::string_view::npos)) break;
        depth += (c == '{' || c == '[') - closes;
        ++at_;
      }
      if (depth == 0 && (c == '"' || c == '}' || c == ']')) break;
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  const std::string_view text_;
  size_t at_ = 0;
};

bool Spells(std::string_view quoted, std::string_view key) {
  const Json name = Json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return name.is_string() && name.get_ref<const std::string&>() == key;
}

// "0", "-1.5e+10"; not "01", ".5" or "1.".
bool IsNumber(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at - begin;
  };
  if (text.starts_with('-')) ++at;
  const size_t first = at, whole = digits();
  if (whole == 0 || (whole > 1 && text[first] == '0')) return false;
  if (at < text.size() && text[at] == '.' && (++at, digits() == 0)) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == text.size();
}

}  // namespace

std::optional<std::string_view> FindRawValue(std::string_view object, std::string_view key) {
  Scanner scan(object);
  if (!scan.Skip('{')) return std::nullopt;
  do {
    scan.SkipSpace();
    const std::string_view name = scan.String();
    if (name.empty() || !scan.Skip(':')) return std::nullopt;
    const std::string_view value = scan.Value();
    if (Spells(name, key)) return value;
  } while (scan.Skip(','));
  return std::nullopt;
}

std::string WithoutNumbers(std::string_view value) {
  std::string text(value);
  Scanner scan(value);
  while (!scan.done()) {
    if (value[scan.at()] == '"') {
      scan.String();
      continue;
    }
    const size_t begin = scan.at();
    const char first = scan.Next();
    if (first != '-' && (first < '0' || first > '9')) continue;
    while (!scan.done() && kNumber.find(value[scan.at()]) != std::string_view::npos) scan.Next();
    if (!IsNumber(value.substr(begin, scan.at() - begin))) continue;
    std::fill(text.begin() + std::ptrdiff_t(begin), text.begin() + std::ptrdiff_t(scan.at()), ' ');
    text[begin] = '0';
  }
  return text;
}

}  // namespace pd::cli
