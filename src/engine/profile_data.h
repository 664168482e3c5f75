// The files of profiles/, as CMake puts them into the program.
#pragma once
#include <span>

namespace pd {

struct ProfileText {
  const char* id;  // the file's name, less .json
  const char* json;
};
extern const std::span<const ProfileText> kProfileTexts;

}  // namespace pd
