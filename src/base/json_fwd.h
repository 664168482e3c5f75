// Names of base/json.h, for headers that only pass them on: including the parser costs a second per file.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace pd {

using Json = nlohmann::ordered_json;  // keeps the keys in file order
class JsonReader;

}  // namespace pd
