// Own reduced declarations of Core Video: pixel buffers over IOSurfaces.
#pragma once
#include <CoreFoundation/CoreFoundation.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct __CVBuffer* CVPixelBufferRef;
typedef int32_t CVReturn;
typedef uint32_t OSType;
typedef uint64_t CVPixelBufferLockFlags;
enum { kCVReturnSuccess = 0 };
enum { kCVPixelBufferLock_ReadOnly = 1 };
enum { kCVPixelFormatType_OneComponent16Half = 0x4C303068 };  // 'L00h'
extern const CFStringRef kCVPixelBufferIOSurfacePropertiesKey;
CVReturn CVPixelBufferCreate(CFAllocatorRef allocator, size_t width, size_t height, OSType format,
                             CFDictionaryRef attributes, CVPixelBufferRef* buffer);
CVPixelBufferRef CVPixelBufferRetain(CVPixelBufferRef buffer);
void CVPixelBufferRelease(CVPixelBufferRef buffer);
CVReturn CVPixelBufferLockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags flags);
CVReturn CVPixelBufferUnlockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags flags);
void* CVPixelBufferGetBaseAddress(CVPixelBufferRef buffer);
size_t CVPixelBufferGetBytesPerRow(CVPixelBufferRef buffer);
size_t CVPixelBufferGetHeight(CVPixelBufferRef buffer);
#ifdef __cplusplus
}
#endif
