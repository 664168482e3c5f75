// Strict reading of JSON objects: every key is read, ignored on purpose, or an error.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace pd {

using SortedJson = nlohmann::json;  // sorts its keys

// Parses text from `where` (a file name, for messages). Throws kCorruptFile with line and column; also for
// duplicate keys and for nesting deeper than 64.
Json ParseJson(std::string_view text, const std::string& where);
// The same for objects of many thousand keys: they come sorted, and reading stays linear where Json, which
// keeps the file's order, compares each key with all before it.
SortedJson ParseSortedJson(std::string_view text, const std::string& where);

// A view of one JSON object that remembers which keys were asked for. The object must outlive it.
//   JsonReader config(json, "config.json");
//   const int width = config.Int("hidden_size");
//   config.Ignore({"torch_dtype", "transformers_version"});
//   config.Done();   // throws kUnsupported and names every key nobody read
class JsonReader {
 public:
  JsonReader(const Json& object, std::string where);

  bool Has(std::string_view key) const;    // present and not null; does not count as read
  bool Names(std::string_view key) const;  // present, perhaps null; does not count as read
  // A missing key throws kCorruptFile; a key of another type or out of range too. Null counts as missing.
  int64_t Int(std::string_view key, int64_t min = 0, int64_t max = INT32_MAX);
  double Number(std::string_view key);
  bool Bool(std::string_view key);
  std::string String(std::string_view key);
  const Json& Value(std::string_view key);  // any type
  JsonReader Object(std::string_view key);  // the caller calls Done() on it
  // The same with a value for a missing key.
  int64_t Int(std::string_view key, std::optional<int64_t> fallback, int64_t min, int64_t max);
  double NumberOr(std::string_view key, double fallback);
  int64_t IntOr(std::string_view key, int64_t fallback, int64_t min = 0, int64_t max = INT32_MAX);
  bool BoolOr(std::string_view key, bool fallback);
  std::string StringOr(std::string_view key, std::string fallback);

  void Ignore(std::initializer_list<std::string_view> keys);  // known to leave the mathematics alone
  // Throws kUnsupported unless the key is absent, null, or equal to the only value we implement.
  void Expect(std::string_view key, const Json& only);
  void Done() const;
  const std::string& where() const { return where_; }

 private:
  const Json* Find(std::string_view key);  // marks the key as read; nullptr when absent or null
  const Json& Require(std::string_view key);
  const Json* object_;
  std::string where_;
  std::map<std::string, bool, std::less<>> read_;
};

}  // namespace pd
