// What the stand-ins of Core ML's classes have in common: a C++ object behind impl_, and failures as
// directed.
#pragma once
#import <CoreML/CoreML.h>

#include <csignal>
#include <cstring>
#include <string>

#include "tests/coreml/standin/backend.h"
#include "tests/coreml/standin/core_video.h"

namespace pd::standin {

using mil::DataType;
using mil::Dims;

// The C++ side of an object; counted.
template <class T>
T* Make(void** impl) {
  ++Director::The().live;
  auto* made = new T();
  *impl = made;
  return made;
}
template <class T>
T& Of(void* impl) {
  return *static_cast<T*>(impl);
}
template <class T>
void Drop(void* impl) {
  if (!impl) return;
  --Director::The().live;
  delete static_cast<T*>(impl);
}

inline NSString* String(const std::string& text) { return [NSString stringWithUTF8String:text.c_str()]; }

inline NSArray* Array(const Dims& numbers) {
  NSMutableArray* array = [NSMutableArray array];
  for (const int64_t number : numbers) [array addObject:[NSNumber numberWithLongLong:number]];
  return array;
}
inline Dims Numbers(NSArray* numbers) {
  Dims dims;
  for (NSNumber* number in numbers) dims.push_back([number longLongValue]);
  return dims;
}

inline NSError* ErrorOf(NSString* domain, int code, NSDictionary* info) {
  return [NSError errorWithDomain:domain code:code userInfo:info];
}

inline NSError* Unspecific(NSString* text) {
  return ErrorOf(MLModelErrorDomain, 0,
                 [NSDictionary dictionaryWithObject:text forKey:NSLocalizedDescriptionKey]);
}

// Whether a call fails by the director's word; then *error and exceptions are seen to.
inline bool Fails(const Fault& fault, NSError** error) {
  NSError* made = nil;
  switch (fault.kind) {
    case Kind::kError:
      made = ErrorOf(MLModelErrorDomain, fault.value,
                     [NSDictionary dictionaryWithObject:@"as directed" forKey:NSLocalizedDescriptionKey]);
      break;
    case Kind::kPosix:
      made = ErrorOf(NSPOSIXErrorDomain, fault.value, nil);
      break;
    case Kind::kCocoa:
      made = ErrorOf(NSCocoaErrorDomain, fault.value, nil);
      break;
    case Kind::kBehind:
      made = ErrorOf(MLModelErrorDomain, 0,
                     [NSDictionary dictionaryWithObject:ErrorOf(NSPOSIXErrorDomain, fault.value, nil)
                                                 forKey:NSUnderlyingErrorKey]);
      break;
    case Kind::kSilent:
      break;
    case Kind::kException:
      [NSException raise:NSInternalInconsistencyException format:@"as directed"];
      break;
    case Kind::kNoMemory:
      [NSException raise:NSMallocException format:@"as directed"];
      break;
    case Kind::kKilled:
      raise(SIGKILL);
      break;
    case Kind::kSlow:
      std::this_thread::sleep_for(std::chrono::milliseconds(fault.value));
      return false;
    default:
      return false;
  }
  if (error) *error = made;
  return true;
}

// Exceptions come from the call itself, everything else by way of its handler, on another thread.
inline bool Throws(const Fault& fault) {
  return fault.kind == Kind::kException || fault.kind == Kind::kNoMemory;
}

struct ArrayImpl {
  void* data = nullptr;
  size_t bytes = 0;
  Dims shape, strides;
  MLMultiArrayDataType type = MLMultiArrayDataTypeFloat16;
  void (^release)(void*) = nullptr;
  CVPixelBufferRef buffer = nullptr;
};
inline size_t ElementBytes(MLMultiArrayDataType type) { return size_t(type & 0xFF) / 8; }
inline size_t Extent(const ArrayImpl& array) {  // of strange strides, a strange one
  uint64_t last = 0;
  for (size_t axis = 0; axis < array.shape.size(); ++axis)
    last += uint64_t(array.shape[axis] - 1) * uint64_t(array.strides[axis]);
  return size_t(last + 1) * ElementBytes(array.type);
}

MLMultiArrayDataType TypeOf(DataType type);  // of features

}  // namespace pd::standin
