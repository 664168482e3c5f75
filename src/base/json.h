// Strict reading of JSON objects: a key is read, explicitly ignored, or an error.
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

// Parses text from `where` (a file name, for messages). Throws kCorruptFile with line and column, also for
// duplicate keys, a NUL byte, and nesting deeper than 64.
Json ParseJson(std::string_view text, const std::string& where);
// The same for objects with many thousands of keys: the keys come sorted, and reading takes linear time. Json
// keeps the file's order and compares each key with all before it.
SortedJson ParseSortedJson(std::string_view text, const std::string& where);

// The same as Python's json reads the files of a model's folder: the last of duplicate keys counts, and NaN,
// Infinity and numbers that overflow are no error unless somebody needs them (they come as strings, "NaN").
Json ParsePythonJson(std::string_view text, const std::string& where);
SortedJson ParseSortedPythonJson(std::string_view text, const std::string& where);

// A view of one JSON object that records which keys were read. The object must outlive it.
//   JsonReader config(json, "config.json");
//   const int width = config.Int("hidden_size");
//   config.Ignore({"torch_dtype", "transformers_version"});
//   config.Done();   // throws kUnsupported and names every unread key, unless it is null
class JsonReader {
 public:
  JsonReader(const Json& object, std::string where);

  bool Has(std::string_view key) const;    // present and not null; does not count as read
  bool Names(std::string_view key) const;  // present, maybe null; does not count as read
  // Throw kCorruptFile if the key is missing, has another type or is out of range. Null counts as missing.
  int64_t Int(std::string_view key, int64_t min = 0, int64_t max = INT32_MAX);
  double Number(std::string_view key);
  bool Bool(std::string_view key);
  std::string String(std::string_view key);
  const Json& Value(std::string_view key);  // any type
  JsonReader Object(std::string_view key);  // the caller calls Done() on it
  // The same with a default for a missing key.
  int64_t Int(std::string_view key, std::optional<int64_t> fallback, int64_t min, int64_t max);
  double NumberOr(std::string_view key, double fallback);
  int64_t IntOr(std::string_view key, int64_t fallback, int64_t min = 0, int64_t max = INT32_MAX);
  bool BoolOr(std::string_view key, bool fallback);
  std::string StringOr(std::string_view key, std::string fallback);

  void Ignore(std::initializer_list<std::string_view> keys);  // keys known not to affect the mathematics
  // Throws kUnsupported unless the key is absent, null, or equal to the only supported value.
  void Expect(std::string_view key, const Json& only);
  void Done(std::string_view remedy =
                "they could change the result, so they are not skipped; this model "
                "needs a newer version") const;
  const std::string& where() const { return where_; }

 private:
  const Json* Find(std::string_view key);  // marks the key as read; nullptr when absent or null
  const Json& Require(std::string_view key);
  const Json* object_;
  std::string where_;
  std::map<std::string, bool, std::less<>> read_;
};

}  // namespace pd
