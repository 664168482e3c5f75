// Ownership of Objective-C objects without ARC, which the runtime used by tests does not support.
#pragma once
#import <Foundation/Foundation.h>

#include <utility>

namespace pd {

// Holds one reference, or none. T is a pointer to a class: Retained<MLModel*>.
template <class T>
class Retained {
 public:
  Retained() = default;
  Retained(const Retained&) = delete;
  Retained(Retained&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Retained& operator=(Retained other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Retained() { [object_ release]; }

  static Retained Adopt(T object) { return Retained(object); }  // takes over the caller's reference
  static Retained Share(T object) { return Retained([object retain]); }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  explicit Retained(T object) : object_(object) {}
  T object_ = nil;
};

}  // namespace pd
