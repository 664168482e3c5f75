// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace pd::cli {

std::string Grouped(int64_t value);                    // 49,152
std::string WithUnit(double value, const char* unit);  // 90.1 M, 1.23 G: four digits and a decimal prefix

}  // namespace pd::cli
