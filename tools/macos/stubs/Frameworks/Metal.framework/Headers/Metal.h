#pragma once
#import <Foundation/Foundation.h>
NS_ASSUME_NONNULL_BEGIN
@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@end
FOUNDATION_EXPORT id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void)
    __attribute__((ns_returns_retained));
NS_ASSUME_NONNULL_END
