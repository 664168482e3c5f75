#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/error.h"

namespace pd {
namespace {

constexpr int kMaxDepth = 64;

// Checks depth and duplicate keys, which the parser does not.
template <class J>
class Guard {
 public:
  Guard(const std::string& where, bool unique_keys) : where_(where), unique_keys_(unique_keys) {}
  bool operator()(int depth, typename J::parse_event_t event, J& value) {
    if (depth > kMaxDepth)
      throw Fail(ErrorKind::kCorruptFile, "{}: JSON nested deeper than {}", where_, kMaxDepth);
    if (!unique_keys_) return true;
    if (event == J::parse_event_t::object_start) keys_.emplace_back();
    if (event == J::parse_event_t::object_end) keys_.pop_back();
    if (event == J::parse_event_t::key && !keys_.back().insert(value.template get<std::string>()).second)
      throw Fail(ErrorKind::kCorruptFile, "{}: key \"{}\" appears twice", where_,
                 value.template get<std::string>());
    return true;
  }

 private:
  const std::string& where_;
  const bool unique_keys_;
  std::vector<std::set<std::string>> keys_;
};

template <class J>
J Parse(std::string_view text, const std::string& where, bool unique_keys) {
  // The parser takes a NUL for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw Fail(ErrorKind::kCorruptFile, "{}: a NUL byte at byte {}, where JSON has none", where, nul);
  try {
    Guard<J> guard(where, unique_keys);
    return J::parse(text, [&](int depth, typename J::parse_event_t event, J& value) {
      return guard(depth, event, value);
    });
  } catch (const typename J::exception& e) {
    std::string_view why =
        e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const size_t end = why.find("] "); end != std::string_view::npos) why.remove_prefix(end + 2);
    throw Fail(ErrorKind::kCorruptFile, "{}: {}", where, why);
  }
}

// Whether the text is a number that no double holds; Python reads it as infinity.
bool Overflows(std::string_view number) {
  const std::string copy(number);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  return end == copy.c_str() + copy.size() && std::isinf(value);
}

// What Python's json reads and JSON does not have, written as strings: whoever asks for the number is told
// what stands there, and nobody else notices.
std::string NonFiniteAsStrings(std::string_view text) {
  constexpr std::string_view kWordCharacters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-.";
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text[at] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      out += text.substr(at, end - at);
    } else if (kWordCharacters.find(text[at]) != std::string_view::npos) {
      end = std::min(text.find_first_not_of(kWordCharacters, at), text.size());
      const std::string_view word = text.substr(at, end - at);
      const bool named = word == "NaN" || word == "Infinity" || word == "-Infinity";
      const bool digits = word.find_first_of("0123456789") != std::string_view::npos;
      const std::string_view quote = named || (digits && Overflows(word)) ? "\"" : "";
      out.append(quote).append(word).append(quote);
    } else {
      out += text[at];
    }
    at = end;
  }
  return out;
}

}  // namespace

Json ParseJson(std::string_view text, const std::string& where) { return Parse<Json>(text, where, true); }

SortedJson ParseSortedJson(std::string_view text, const std::string& where) {
  return Parse<SortedJson>(text, where, true);
}

Json ParsePythonJson(std::string_view text, const std::string& where) {
  return Parse<Json>(NonFiniteAsStrings(text), where, false);
}

SortedJson ParseSortedPythonJson(std::string_view text, const std::string& where) {
  return Parse<SortedJson>(NonFiniteAsStrings(text), where, false);
}

JsonReader::JsonReader(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
  if (!object.is_object())
    throw Fail(ErrorKind::kCorruptFile, "{}: expected a JSON object, found {}", where_, object.type_name());
  for (const auto& [key, value] : object.items()) read_[key] = false;
}

bool JsonReader::Has(std::string_view key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !it->is_null();
}

bool JsonReader::Names(std::string_view key) const { return object_->contains(key); }

const Json* JsonReader::Find(std::string_view key) {
  const auto it = object_->find(key);
  if (it == object_->end()) return nullptr;
  read_.find(key)->second = true;
  return it->is_null() ? nullptr : &*it;
}

const Json& JsonReader::Require(std::string_view key) {
  const Json* value = Find(key);
  if (!value) throw Fail(ErrorKind::kCorruptFile, "{}: key \"{}\" is missing", where_, key);
  return *value;
}

int64_t JsonReader::Int(std::string_view key, std::optional<int64_t> fallback, int64_t min, int64_t max) {
  const Json* value = Find(key);
  if (!value && fallback) return *fallback;
  if (!value) value = &Require(key);
  const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= uint64_t(INT64_MAX)
                                                : value->is_number_integer();
  if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max)
    throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" must be an integer from {} to {}, found {}", where_, key,
               min, max, value->dump());
  return value->get<int64_t>();
}
int64_t JsonReader::Int(std::string_view key, int64_t min, int64_t max) {
  return Int(key, std::nullopt, min, max);
}
int64_t JsonReader::IntOr(std::string_view key, int64_t fallback, int64_t min, int64_t max) {
  return Int(key, fallback, min, max);
}

double JsonReader::Number(std::string_view key) {
  const Json& value = Require(key);
  if (!value.is_number())
    throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" must be a number, found {}", where_, key, value.dump());
  return value.get<double>();
}
double JsonReader::NumberOr(std::string_view key, double fallback) {
  return Find(key) ? Number(key) : fallback;
}

bool JsonReader::Bool(std::string_view key) {
  const Json& value = Require(key);
  if (!value.is_boolean())
    throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" must be true or false, found {}", where_, key,
               value.dump());
  return value.get<bool>();
}
bool JsonReader::BoolOr(std::string_view key, bool fallback) { return Find(key) ? Bool(key) : fallback; }

std::string JsonReader::String(std::string_view key) {
  const Json& value = Require(key);
  if (!value.is_string())
    throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" must be a string, found {}", where_, key, value.dump());
  return value.get<std::string>();
}
std::string JsonReader::StringOr(std::string_view key, std::string fallback) {
  return Find(key) ? String(key) : std::move(fallback);
}

const Json& JsonReader::Value(std::string_view key) { return Require(key); }

JsonReader JsonReader::Object(std::string_view key) {
  return JsonReader(Require(key), where_ + ": " + std::string(key));
}

void JsonReader::Ignore(std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) Find(key);
}

void JsonReader::Expect(std::string_view key, const Json& only) {
  const Json* value = Find(key);
  if (value && *value != only)
    throw Fail(ErrorKind::kUnsupported, "{}: \"{}\" is {}; only {} is supported", where_, key, value->dump(),
               only.dump());
}

void JsonReader::Done(std::string_view remedy) const {
  std::string unread;
  for (const auto& [key, read] : read_)
    if (!read && Has(key)) unread += (unread.empty() ? "" : ", ") + key;
  if (!unread.empty())
    throw Fail(ErrorKind::kUnsupported, "{}: unknown key(s) {}: {}", where_, unread, remedy);
}

}  // namespace pd
