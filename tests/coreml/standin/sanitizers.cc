// What sanitizers must know of the Objective-C runtime and of GNUstep. Read by their libraries at start, if
// there are any. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the sanitizers name
// them
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
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
