// Memory directly from the operating system.
#pragma once
#include <cstddef>
#include <string_view>
#include <utility>

namespace pd::cpu {

// Zeroed, committed page by page on first touch, released by the destructor. Move-only.
class Pages {
 public:
  enum class Size {
    kSmall,
    kHuge
  };  // kHuge asks for 2 MB pages: fewer TLB misses, but 2 MB at the first touch

  static constexpr size_t kHugeBytes = size_t(2) << 20;

  Pages() = default;
  // Throws kOutOfMemory with `what` in the message.
  Pages(size_t bytes, Size size, std::string_view what);
  ~Pages();
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }  // aligned to a page
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

size_t PhysicalMemory();  // bytes this machine has

}  // namespace pd::cpu
