#include "model/registry.h"

#include <algorithm>

#include "model/families/families.h"

namespace pd {
namespace {

const std::vector<Family>& Families() {
  static const std::vector<Family> families = {LlamaFamily(), QwenFamily(), GemmaFamily()};
  return families;
}

}  // namespace

const Family* FindFamily(std::string_view model_type) {
  for (const Family& family : Families())
    if (std::find(family.model_types.begin(), family.model_types.end(), model_type) !=
        family.model_types.end())
      return &family;
  return nullptr;
}

std::vector<std::string> KnownModelTypes() {
  std::vector<std::string> types;
  for (const Family& family : Families())
    types.insert(types.end(), family.model_types.begin(), family.model_types.end());
  return types;
}

}  // namespace pd
