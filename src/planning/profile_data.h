// The files of profiles/, which CMake embeds in the program.
#pragma once
#include <span>

namespace pd {

struct ProfileText {
  const char* id;  // file name without .json
  const char* json;
};
extern const std::span<const ProfileText> kProfileTexts;

}  // namespace pd
