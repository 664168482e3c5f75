#include "base/json.h"

#include <set>

#include "base/error.h"

namespace pd {
namespace {

// Checks what the parser alone does not: depth and duplicate keys.
template <class J>
class Guard {
 public:
  explicit Guard(const std::string& where) : where_(where) {}
  bool operator()(int depth, typename J::parse_event_t event, J& value) {
    if (depth > 64) throw Fail(ErrorKind::kCorruptFile, "{}: JSON nested deeper than 64", where_);
    if (event == J::parse_event_t::object_start) keys_.emplace_back();
    if (event == J::parse_event_t::object_end) keys_.pop_back();
    if (event == J::parse_event_t::key && !keys_.back().insert(value.template get<std::string>()).second)
      throw Fail(ErrorKind::kCorruptFile, "{}: key \"{}\" stands twice", where_,
                 value.template get<std::string>());
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> keys_;
};

template <class J>
J Parse(std::string_view text, const std::string& where) {
  try {
    Guard<J> guard(where);
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

}  // namespace

Json ParseJson(std::string_view text, const std::string& where) { return Parse<Json>(text, where); }

SortedJson ParseSortedJson(std::string_view text, const std::string& where) {
  return Parse<SortedJson>(text, where);
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

void JsonReader::Done() const {
  std::string unread;
  for (const auto& [key, read] : read_)
    if (!read) unread += (unread.empty() ? "" : ", ") + key;
  if (!unread.empty())
    throw Fail(ErrorKind::kUnsupported,
               "{}: unknown key(s) {}: they could change the result, so they are not skipped; this model "
               "needs a newer version",
               where_, unread);
}

}  // namespace pd
