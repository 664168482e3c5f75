// Runs the real pd-engine, from the repository's root.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace pd::test {

struct Outcome {
  int code = 0;  // exit code; 128 + the signal's number when one ended it
  std::string out, err;
};

struct Launch {
  std::string input = {};                      // standard input
  std::vector<std::string> environment = {};   // "NAME=value", beside the test's own
  std::function<void(int pid)> on_start = {};  // called once, when the process runs
  std::function<void(int pid)> on_first_output =
      {};                     // called once, when the first byte of standard output comes
  bool close_output = false;  // nobody reads standard output
};

// `arguments` come after the program's name. Gives up, and fails the test, after a minute.
Outcome RunEngine(const std::vector<std::string>& arguments, const Launch& launch = {});

// Expects success: standard output, with nothing on standard error.
std::string OutputOf(const std::vector<std::string>& arguments, const Launch& launch = {});
// Expects failure: nothing on standard output, and one line "pd-engine: ..." on standard error, which is
// returned without that name.
std::string ErrorOf(int code, const std::vector<std::string>& arguments, const Launch& launch = {});

bool Contains(const std::string& text, const std::string& part);

}  // namespace pd::test
