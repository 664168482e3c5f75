// Counts what the program allocates, in whatever thread: allocations.cc replaces malloc and operator new.
#pragma once
#include <cstdint>

namespace pd::test {

int64_t AllocationsSoFar();

class AllocationCount {
 public:
  int64_t Get() const { return AllocationsSoFar() - start_; }

 private:
  int64_t start_ = AllocationsSoFar();
};

}  // namespace pd::test
