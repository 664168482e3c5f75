// Stand-ins of arrays, features and options.
#include <Block.h>

#include "tests/coreml/standin/classes.h"

using namespace pd::standin;

NSString* const MLModelErrorDomain = @"com.apple.CoreML";

@implementation MLMultiArray
- (instancetype)initWithDataPointer:(void*)data
                              shape:(NSArray*)shape
                           dataType:(MLMultiArrayDataType)type
                            strides:(NSArray*)strides
                        deallocator:(void (^)(void*))release
                              error:(NSError**)error {
  if ((self = [super init])) {
    auto* array = Make<ArrayImpl>(&impl_);
    array->data = data;
    array->shape = Numbers(shape), array->strides = Numbers(strides), array->type = type;
    if (array->shape.size() == array->strides.size()) array->bytes = Extent(*array);
    if (release) array->release = (void (^)(void*))Block_copy(release);
  }
  return self;
}
- (instancetype)initWithPixelBuffer:(CVPixelBufferRef)buffer shape:(NSArray*)shape {
  if ((self = [super init])) {
    auto* array = Make<ArrayImpl>(&impl_);
    array->buffer = CVPixelBufferRetain(buffer);
    array->data = CVPixelBufferGetBaseAddress(buffer);
    array->bytes = CVPixelBufferGetBytesPerRow(buffer) * CVPixelBufferGetHeight(buffer);
    array->shape = Numbers(shape);
    array->strides.assign(array->shape.size(), 1);
    int64_t step = int64_t(CVPixelBufferGetBytesPerRow(buffer) / 2);
    for (size_t axis = array->shape.size() - 1; axis-- > 0;) {
      array->strides[axis] = step;
      step *= array->shape[axis];
    }
    if (CVPixelBufferIsStrange(buffer)) array->strides.assign(array->shape.size(), 0);
  }
  return self;
}
- (void)dealloc {
  auto& array = Of<ArrayImpl>(impl_);
  if (array.release) {
    array.release(array.data);
    Block_release(array.release);
  }
  if (array.buffer) CVPixelBufferRelease(array.buffer);
  Drop<ArrayImpl>(impl_);
  [super dealloc];
}
- (NSArray*)shape {
  return Array(Of<ArrayImpl>(impl_).shape);
}
- (NSArray*)strides {
  return Array(Of<ArrayImpl>(impl_).strides);
}
- (MLMultiArrayDataType)dataType {
  return Of<ArrayImpl>(impl_).type;
}
- (void)getBytesWithHandler:(void (^)(const void*, NSInteger))handler {
  handler(Of<ArrayImpl>(impl_).data, NSInteger(Of<ArrayImpl>(impl_).bytes));
}
@end

@implementation MLFeatureValue
+ (instancetype)featureValueWithMultiArray:(MLMultiArray*)array {
  MLFeatureValue* value = [[[MLFeatureValue alloc] init] autorelease];
  *Make<MLMultiArray*>(&value->impl_) = [array retain];
  return value;
}
- (void)dealloc {
  [Of<MLMultiArray*>(impl_) release];
  Drop<MLMultiArray*>(impl_);
  [super dealloc];
}
- (MLMultiArray*)multiArrayValue {
  return Of<MLMultiArray*>(impl_);
}
@end

@implementation MLDictionaryFeatureProvider
- (instancetype)initWithDictionary:(NSDictionary*)dictionary error:(NSError**)error {
  if ((self = [super init])) *Make<NSDictionary*>(&impl_) = [dictionary copy];
  return self;
}
- (void)dealloc {
  [Of<NSDictionary*>(impl_) release];
  Drop<NSDictionary*>(impl_);
  [super dealloc];
}
- (NSSet*)featureNames {
  return [NSSet setWithArray:[Of<NSDictionary*>(impl_) allKeys]];
}
- (MLFeatureValue*)featureValueForName:(NSString*)name {
  return [Of<NSDictionary*>(impl_) objectForKey:name];
}
@end

namespace {
struct ConfigurationImpl {
  MLComputeUnits units = MLComputeUnitsAll;
  NSString* function = nil;
  MLOptimizationHints* hints = nil;
};
struct HintsImpl {
  MLReshapeFrequencyHint frequency = MLReshapeFrequencyHintFrequent;
  MLSpecializationStrategy strategy = MLSpecializationStrategyDefault;
};
}  // namespace

@implementation MLOptimizationHints
- (instancetype)init {
  if ((self = [super init])) Make<HintsImpl>(&impl_);
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MLOptimizationHints* copy = [[MLOptimizationHints alloc] init];
  Of<HintsImpl>(copy->impl_) = Of<HintsImpl>(impl_);
  return copy;
}
- (void)dealloc {
  Drop<HintsImpl>(impl_);
  [super dealloc];
}
- (void)setReshapeFrequency:(MLReshapeFrequencyHint)frequency {
  Of<HintsImpl>(impl_).frequency = frequency;
}
- (MLReshapeFrequencyHint)reshapeFrequency {
  return Of<HintsImpl>(impl_).frequency;
}
- (void)setSpecializationStrategy:(MLSpecializationStrategy)strategy {
  Of<HintsImpl>(impl_).strategy = strategy;
}
- (MLSpecializationStrategy)specializationStrategy {
  return Of<HintsImpl>(impl_).strategy;
}
@end

@implementation MLModelConfiguration
- (instancetype)init {
  if ((self = [super init])) Make<ConfigurationImpl>(&impl_);
  return self;
}
- (void)dealloc {
  [Of<ConfigurationImpl>(impl_).function release];
  [Of<ConfigurationImpl>(impl_).hints release];
  Drop<ConfigurationImpl>(impl_);
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MLModelConfiguration* copy = [[MLModelConfiguration alloc] init];
  [copy setComputeUnits:[self computeUnits]];
  [copy setFunctionName:[self functionName]];
  [copy setOptimizationHints:[self optimizationHints]];
  return copy;
}
- (MLOptimizationHints*)optimizationHints {
  return Of<ConfigurationImpl>(impl_).hints;
}
- (MLComputeUnits)computeUnits {
  return Of<ConfigurationImpl>(impl_).units;
}
- (void)setComputeUnits:(MLComputeUnits)units {
  Of<ConfigurationImpl>(impl_).units = units;
}
- (NSString*)functionName {
  return Of<ConfigurationImpl>(impl_).function;
}
- (void)setFunctionName:(NSString*)name {
  [Of<ConfigurationImpl>(impl_).function release];
  Of<ConfigurationImpl>(impl_).function = [name copy];
}
- (void)setOptimizationHints:(MLOptimizationHints*)hints {
  [Of<ConfigurationImpl>(impl_).hints release];
  Of<ConfigurationImpl>(impl_).hints = [hints copy];
}
@end

@implementation MLPredictionOptions
- (instancetype)init {
  if ((self = [super init])) Make<NSDictionary*>(&impl_);
  return self;
}
- (void)dealloc {
  [Of<NSDictionary*>(impl_) release];
  Drop<NSDictionary*>(impl_);
  [super dealloc];
}
- (NSDictionary*)outputBackings {
  return Of<NSDictionary*>(impl_);
}
- (void)setOutputBackings:(NSDictionary*)backings {
  [Of<NSDictionary*>(impl_) release];
  Of<NSDictionary*>(impl_) = [backings copy];
}
@end
