// Own reduced Foundation declarations: compile checks of our .mm files only.
#pragma once
#include <Availability.h>
#include <CoreFoundation/CoreFoundation.h>
#include <dispatch/dispatch.h>
#include <objc/NSObject.h>
#include <os/availability.h>
#include <stdarg.h>
#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#define NS_ENUM(T, N) \
  enum N : T N;       \
  enum N : T
#define NS_OPTIONS(T, N) \
  enum N : T N;          \
  enum N : T
#undef NS_UNAVAILABLE
#define NS_UNAVAILABLE __attribute__((unavailable))
#define NS_NOESCAPE __attribute__((noescape))
#ifdef __cplusplus
#define FOUNDATION_EXPORT extern "C"
#else
#define FOUNDATION_EXPORT extern
#endif
typedef double NSTimeInterval;
typedef unsigned short unichar;
typedef struct _NSZone NSZone;
typedef NSUInteger NSStringEncoding;
enum { NSUTF8StringEncoding = 4 };
NS_ASSUME_NONNULL_BEGIN
@class NSString, NSNumber, NSArray<T>, NSDictionary<K, V>, NSSet<T>, NSURL, NSError, NSData, NSCoder;
@protocol NSCopying
- (id)copyWithZone:(nullable NSZone*)zone;
@end
typedef struct {
  unsigned long state;
  id __unsafe_unretained _Nullable* _Nullable itemsPtr;
  unsigned long* _Nullable mutationsPtr;
  unsigned long extra[5];
} NSFastEnumerationState;
@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id __unsafe_unretained _Nullable[_Nonnull])buffer
                                    count:(NSUInteger)len;
@end
@interface NSString : NSObject <NSCopying>
@property(readonly) NSUInteger length;
@property(nullable, readonly) const char* UTF8String;
@property(readonly, copy) NSString* lastPathComponent;
+ (nullable instancetype)stringWithUTF8String:(const char*)s;
+ (instancetype)stringWithFormat:(NSString*)format, ... __attribute__((format(__NSString__, 1, 2)));
- (BOOL)isEqualToString:(NSString*)s;
- (BOOL)hasPrefix:(NSString*)s;
@end
@interface NSValue : NSObject <NSCopying>
@end
@interface NSNumber : NSValue
@property(readonly) int intValue;
@property(readonly) NSInteger integerValue;
@property(readonly) double doubleValue;
@property(readonly) BOOL boolValue;
+ (NSNumber*)numberWithInt:(int)v;
+ (NSNumber*)numberWithUnsignedInt:(unsigned)v;
+ (NSNumber*)numberWithLong:(long)v;
+ (NSNumber*)numberWithUnsignedLong:(unsigned long)v;
+ (NSNumber*)numberWithLongLong:(long long)v;
+ (NSNumber*)numberWithUnsignedLongLong:(unsigned long long)v;
+ (NSNumber*)numberWithFloat:(float)v;
+ (NSNumber*)numberWithDouble:(double)v;
+ (NSNumber*)numberWithBool:(BOOL)v;
@end
@interface NSArray<__covariant T> : NSObject <NSCopying, NSFastEnumeration>
@property(readonly) NSUInteger count;
@property(nullable, nonatomic, readonly) T firstObject;
- (T)objectAtIndexedSubscript:(NSUInteger)i;
+ (instancetype)arrayWithObjects:(const T _Nonnull[_Nullable])objects count:(NSUInteger)n;
@end
@interface NSMutableArray<T> : NSArray <T>
+ (instancetype)array;
- (void)addObject:(T)o;
@end
@interface NSDictionary<__covariant K, __covariant V> : NSObject <NSCopying, NSFastEnumeration>
@property(readonly) NSUInteger count;
@property(readonly, copy) NSArray<K>* allKeys;
- (nullable V)objectForKey:(K)key;
- (nullable V)objectForKeyedSubscript:(K)key;
+ (instancetype)dictionary;
+ (instancetype)dictionaryWithObject:(V)object forKey:(K<NSCopying>)key;
+ (instancetype)dictionaryWithObjects:(const V _Nonnull[_Nullable])objects
                              forKeys:(const K<NSCopying> _Nonnull[_Nullable])keys
                                count:(NSUInteger)n;
- (void)enumerateKeysAndObjectsUsingBlock:(void(NS_NOESCAPE ^)(K key, V obj, BOOL* stop))block;
@end
@interface NSMutableDictionary<K, V> : NSDictionary <K, V>
- (void)setObject:(V)obj forKey:(K<NSCopying>)key;
- (void)setObject:(nullable V)obj forKeyedSubscript:(K<NSCopying>)key;
@end
@interface NSSet<__covariant T> : NSObject <NSCopying, NSFastEnumeration>
@property(readonly) NSUInteger count;
- (BOOL)containsObject:(T)o;
@end
@interface NSURL : NSObject <NSCopying>
@property(nullable, readonly, copy) NSString* path;
+ (NSURL*)fileURLWithPath:(NSString*)path;
+ (NSURL*)fileURLWithPath:(NSString*)path isDirectory:(BOOL)isDir;
@end
@interface NSError : NSObject <NSCopying>
@property(readonly, copy) NSString* domain;
@property(readonly) NSInteger code;
@property(readonly, copy) NSString* localizedDescription;
@property(readonly, copy) NSDictionary<NSString*, id>* userInfo;
+ (instancetype)errorWithDomain:(NSString*)domain
                           code:(NSInteger)code
                       userInfo:(nullable NSDictionary<NSString*, id>*)d;
@end
FOUNDATION_EXPORT NSString* const NSCocoaErrorDomain;
FOUNDATION_EXPORT NSString* const NSPOSIXErrorDomain;
FOUNDATION_EXPORT NSString* const NSUnderlyingErrorKey;
FOUNDATION_EXPORT NSString* const NSMallocException;
__attribute__((objc_exception))
@interface NSException : NSObject
@property(readonly, copy) NSString* name;
@property(nullable, readonly, copy) NSString* reason;
@end
FOUNDATION_EXPORT void NSLog(NSString* format, ...) __attribute__((format(__NSString__, 1, 2)));
FOUNDATION_EXPORT NSString* NSStringFromClass(Class c);
NS_ASSUME_NONNULL_END
