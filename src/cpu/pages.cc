#include "cpu/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/error.h"

namespace pd::cpu {

Pages::Pages(size_t bytes, Size size, std::string_view what) {
  if (bytes == 0) return;
  const size_t page = size == Size::kHuge ? kHugeBytes : size_t(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  const size_t slack = size == Size::kHuge ? page : 0;  // for alignment
  void* mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    throw Fail(ErrorKind::kOutOfMemory, "{}: the system cannot provide {} MB", what, bytes >> 20);
  auto* start = static_cast<std::byte*>(mapped);
  const size_t before = (page - reinterpret_cast<uintptr_t>(start) % page) % page;
  if (before > 0) munmap(start, before);
  if (slack > before) munmap(start + before + bytes, slack - before);
  data_ = start + before, bytes_ = bytes;
#ifdef MADV_HUGEPAGE
  if (size == Size::kHuge) madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
}

Pages::~Pages() {
  if (data_) munmap(data_, bytes_);
}

size_t PhysicalMemory() { return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE)); }

}  // namespace pd::cpu
