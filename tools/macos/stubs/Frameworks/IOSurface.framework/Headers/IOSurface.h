#pragma once
#include <CoreFoundation/CoreFoundation.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef struct __IOSurface* IOSurfaceRef;
typedef uint32_t IOSurfaceID;
typedef uint32_t IOSurfaceLockOptions;
enum { kIOSurfaceLockReadOnly = 1u };
extern const CFStringRef kIOSurfaceWidth, kIOSurfaceHeight, kIOSurfaceBytesPerElement, kIOSurfaceBytesPerRow,
    kIOSurfaceAllocSize, kIOSurfacePixelFormat;
IOSurfaceRef IOSurfaceCreate(CFDictionaryRef properties);
int IOSurfaceLock(IOSurfaceRef s, IOSurfaceLockOptions o, uint32_t* seed);
int IOSurfaceUnlock(IOSurfaceRef s, IOSurfaceLockOptions o, uint32_t* seed);
void* IOSurfaceGetBaseAddress(IOSurfaceRef s);
size_t IOSurfaceGetAllocSize(IOSurfaceRef s);
#ifdef __cplusplus
}
#endif
