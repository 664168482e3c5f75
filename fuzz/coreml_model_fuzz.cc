// Whatever the bytes, they are a program that keeps every rule and that we write as we read it, or an Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "coreml/mil/lint.h"
#include "coreml/package/package.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const pd::Package package =
        pd::ParseModel(std::string(reinterpret_cast<const char*>(data), size), "input");
    const pd::Package again = pd::ParseModel(pd::SerialiseModel(package), "again");
    PD_CHECK(again.program == package.program);
    for (const auto& [name, function] : package.program.functions) pd::mil::Lint(name, function);
    pd::mil::ToText(package.program);
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
