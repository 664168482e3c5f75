// What sanitizers must know of the Objective-C runtime and of GNUstep, and the other way round. Their
// libraries, if there are any, read it at start.
#include <cstddef>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_suppressions();

// Classes and constant objects are made once and kept.
extern "C" const char* __lsan_default_suppressions() { return "leak:libobjc\nleak:libgnustep-base\n"; }

// The order of locks inside those libraries is theirs.
extern "C" const char* __tsan_default_options() { return "detect_deadlocks=0"; }

// So is what they do to their own memory: they are not instrumented.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libobjc\ncalled_from_lib:libgnustep-base\n";
}

#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
// clang, which compiles the Objective-C++, calls these. gcc's library has the C functions instead, and
// watches them as well.
extern "C" void* __tsan_memcpy(void* to, const void* from, size_t bytes);
extern "C" void* __tsan_memmove(void* to, const void* from, size_t bytes);
extern "C" void* __tsan_memset(void* to, int value, size_t bytes);
extern "C" void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  return std::memcpy(to, from, bytes);
}
extern "C" void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  return std::memmove(to, from, bytes);
}
extern "C" void* __tsan_memset(void* to, int value, size_t bytes) { return std::memset(to, value, bytes); }
#endif
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
