// Stand-ins of the few functions of Core Video that give arrays their memory.
#include "tests/coreml/standin/core_video.h"

#import <Foundation/Foundation.h>

#include <atomic>
#include <vector>

#include "tests/coreml/standin/backend.h"

using pd::standin::Call;
using pd::standin::Director;
using pd::standin::Kind;

struct __CVBuffer {
  std::atomic<int> references{1}, locks{0};
  size_t width = 0, height = 0, pitch = 0;
  bool strange = false;
  std::vector<std::byte> memory;
};

const CFStringRef kCVPixelBufferIOSurfacePropertiesKey = (CFStringRef) @"IOSurfaceProperties";

CVReturn CVPixelBufferCreate(CFAllocatorRef, size_t width, size_t height, OSType format,
                             CFDictionaryRef attributes, CVPixelBufferRef* buffer) {
  const auto fault = Director::The().Next(Call::kSurface);
  const bool surface =
      [(NSDictionary*)attributes objectForKey:(NSString*)kCVPixelBufferIOSurfacePropertiesKey] != nil;
  if (fault.kind == Kind::kError || !surface || format != kCVPixelFormatType_OneComponent16Half) return -1;
  auto* made = new __CVBuffer;
  made->width = width, made->height = height;
  made->pitch = (width * 2 + 63) / 64 * 64;
  made->strange = fault.kind == Kind::kStrangeStrides;
  made->memory.resize(made->pitch * height);
  ++Director::The().live;
  *buffer = made;
  return kCVReturnSuccess;
}
CVPixelBufferRef CVPixelBufferRetain(CVPixelBufferRef buffer) {
  ++buffer->references;
  return buffer;
}
void CVPixelBufferRelease(CVPixelBufferRef buffer) {
  if (--buffer->references > 0) return;
  --Director::The().live;
  delete buffer;
}
CVReturn CVPixelBufferLockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags) {
  if (Director::The().Next(Call::kLock).kind == Kind::kError) return -1;
  ++buffer->locks;
  return kCVReturnSuccess;
}
CVReturn CVPixelBufferUnlockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags) {
  --buffer->locks;
  return kCVReturnSuccess;
}
void* CVPixelBufferGetBaseAddress(CVPixelBufferRef buffer) { return buffer->memory.data(); }
size_t CVPixelBufferGetBytesPerRow(CVPixelBufferRef buffer) { return buffer->pitch; }
size_t CVPixelBufferGetHeight(CVPixelBufferRef buffer) { return buffer->height; }

bool CVPixelBufferIsLocked(CVPixelBufferRef buffer) { return buffer->locks > 0; }
bool CVPixelBufferIsStrange(CVPixelBufferRef buffer) { return buffer->strange; }
