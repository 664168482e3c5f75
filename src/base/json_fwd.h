// The names of base/json.h, for headers that only pass them on: the parser costs every includer a second.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace pd {

using Json = nlohmann::ordered_json;  // keeps the order of keys
class JsonReader;

}  // namespace pd
