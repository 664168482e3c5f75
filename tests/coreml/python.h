// From the root of the repository: runs Python with Apple's coremltools: an independent reader, writer and
// judge of packages.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace pd::test {

struct Ran {
  int status = 0;  // 0 when the program returned 0
  std::string output;
};

inline Ran RunPython(const std::string& script, const std::vector<std::string>& arguments) {
  const char* python = std::getenv("PD_COREMLTOOLS_PYTHON");  // ctest sets it; its path is the build's choice
  if (!python) return {-1, "PD_COREMLTOOLS_PYTHON names no Python"};
  std::string command = "'" + std::string(python) + "' '" + script + "'";
  for (const std::string& a : arguments) command += " '" + a + "'";
  command += " 2>/dev/null";  // progress bars of coremltools
  Ran ran;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return {-1, "cannot run " + command};
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    ran.output.append(buffer.data(), n);
  ran.status = ::pclose(pipe);
  return ran;
}

inline Ran Validate(const std::vector<std::string>& arguments) {
  return RunPython("tools/validate_mlpackage.py", arguments);
}

}  // namespace pd::test
