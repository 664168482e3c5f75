// Whatever the bytes, the JSON reader parses them or throws Error: no other exception, no crash, no endless
// nesting.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace {

// Asks for one key of every type, as a loader would, whatever the object holds.
void ReadKeys(const pd::Json& object) {
  pd::JsonReader reader(object, "input");
  const auto attempt = [](auto read) {
    try {
      read();
    } catch (const pd::Error&) {
    }
  };
  for (const auto& [key, value] : object.items()) {
    attempt([&] { reader.Int(key); });
    attempt([&] { reader.Number(key); });
    attempt([&] { reader.Bool(key); });
    attempt([&] { reader.String(key); });
    attempt([&] { ReadKeys(value); });
  }
  reader.Done();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    ReadKeys(pd::ParseJson(std::string_view(reinterpret_cast<const char*>(data), size), "input"));
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
