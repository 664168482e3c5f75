// What a test says about bad input: the error's kind, and what its one line must name.
#pragma once
#include <gtest/gtest.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace pd::test {

// Runs `run`, which must throw Error of this kind with every one of `named` in its message.
template <class F>
void ExpectError(ErrorKind kind, std::span<const std::string_view> named, F run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(Name(error.kind()), std::string_view(Name(kind))) << error.what();
    for (const std::string_view name : named)
      EXPECT_NE(std::string_view(error.what()).find(name), std::string_view::npos)
          << "\"" << name << "\" is not in: " << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << "more than one line";
    return;
  }
  ADD_FAILURE() << "nothing was thrown where the error should name \"" << *named.begin() << "\"";
}
template <class F>
void ExpectError(ErrorKind kind, std::initializer_list<std::string_view> named, F run) {
  ExpectError(kind, std::span(named.begin(), named.size()), run);
}

}  // namespace pd::test
