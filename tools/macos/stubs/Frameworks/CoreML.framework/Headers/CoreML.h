// Own reduced declarations of Core ML (macOS 15 surface that we call).
// Selectors and types checked against public open bindings (objc2-core-ml).
#pragma once
#import <Foundation/Foundation.h>
#if __has_include(<CoreVideo/CoreVideo.h>)
#import <CoreVideo/CoreVideo.h>
#define ML_DECL_CV 1
#endif
#if __has_include(<Metal/Metal.h>)
#import <Metal/Metal.h>
#define ML_DECL_METAL 1
#endif
#ifdef __cplusplus
#define ML_DECL_EXTERN extern "C"
#else
#define ML_DECL_EXTERN extern
#endif
#ifndef API_AVAILABLE
#define API_AVAILABLE(...)
#endif
#ifndef NS_NOESCAPE
#define NS_NOESCAPE
#endif
// Outside Apple's runtime (stand-ins over GNUstep, whose classes need their variables declared here) every
// class carries one pointer.
#ifdef __APPLE__
#define ML_DECL_IMPL
#else
#define ML_DECL_IMPL \
  {                  \
   @public           \
    void* impl_;     \
  }
#endif
NS_ASSUME_NONNULL_BEGIN

@class MLModel, MLModelConfiguration, MLModelDescription, MLMultiArray, MLState, MLModelAsset, MLFeatureValue,
    MLPredictionOptions, MLFeatureDescription, MLMultiArrayConstraint, MLStateConstraint, MLModelStructure,
    MLModelStructureProgram, MLModelStructureProgramFunction, MLModelStructureProgramBlock,
    MLModelStructureProgramOperation, MLModelStructureProgramNamedValueType, MLComputePlanCost,
    MLComputePlanDeviceUsage;

ML_DECL_EXTERN NSString* const MLModelErrorDomain;

typedef NS_ENUM(NSInteger, MLFeatureType) {
  MLFeatureTypeInvalid = 0,
  MLFeatureTypeInt64 = 1,
  MLFeatureTypeDouble = 2,
  MLFeatureTypeString = 3,
  MLFeatureTypeImage = 4,
  MLFeatureTypeMultiArray = 5,
  MLFeatureTypeDictionary = 6,
  MLFeatureTypeSequence = 7,
  MLFeatureTypeState = 8,
};
typedef NS_ENUM(NSInteger, MLMultiArrayDataType) {
  MLMultiArrayDataTypeDouble = 0x10000 | 64,
  MLMultiArrayDataTypeFloat64 = 0x10000 | 64,
  MLMultiArrayDataTypeFloat32 = 0x10000 | 32,
  MLMultiArrayDataTypeFloat = 0x10000 | 32,
  MLMultiArrayDataTypeFloat16 = 0x10000 | 16,
  MLMultiArrayDataTypeInt32 = 0x20000 | 32,
  MLMultiArrayDataTypeInt8 = 0x20000 | 8,
};
typedef NS_ENUM(NSInteger, MLComputeUnits) {
  MLComputeUnitsCPUOnly = 0,
  MLComputeUnitsCPUAndGPU = 1,
  MLComputeUnitsAll = 2,
  MLComputeUnitsCPUAndNeuralEngine = 3,
};
typedef NS_ENUM(NSInteger, MLReshapeFrequencyHint) {
  MLReshapeFrequencyHintFrequent = 0,
  MLReshapeFrequencyHintInfrequent = 1,
};
typedef NS_ENUM(NSInteger, MLSpecializationStrategy) {
  MLSpecializationStrategyDefault = 0,
  MLSpecializationStrategyFastPrediction = 1,
};

@protocol MLFeatureProvider <NSObject>
@property(readonly, nonatomic) NSSet<NSString*>* featureNames;
- (nullable MLFeatureValue*)featureValueForName:(NSString*)featureName;
@end

API_AVAILABLE(macos(10.13))
@interface MLMultiArray : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) void* dataPointer;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@property(readonly, nonatomic) NSArray<NSNumber*>* shape;
@property(readonly, nonatomic) NSArray<NSNumber*>* strides;
@property(readonly, nonatomic) NSInteger count;
- (nullable instancetype)initWithShape:(NSArray<NSNumber*>*)shape
                              dataType:(MLMultiArrayDataType)dataType
                                 error:(NSError* _Nullable* _Nullable)error;
- (nullable instancetype)initWithDataPointer:(void*)dataPointer
                                       shape:(NSArray<NSNumber*>*)shape
                                    dataType:(MLMultiArrayDataType)dataType
                                     strides:(NSArray<NSNumber*>*)strides
                                 deallocator:(void (^_Nullable)(void* bytes))deallocator
                                       error:(NSError* _Nullable* _Nullable)error;
#ifdef ML_DECL_CV
- (instancetype)initWithPixelBuffer:(CVPixelBufferRef)pixelBuffer shape:(NSArray<NSNumber*>*)shape;
@property(readonly, nonatomic, nullable) CVPixelBufferRef pixelBuffer;
#endif
- (void)getBytesWithHandler:(void(NS_NOESCAPE ^)(const void* bytes, NSInteger size))handler;
- (void)getMutableBytesWithHandler:(void(NS_NOESCAPE ^)(void* mutableBytes, NSInteger size,
                                                        NSArray<NSNumber*>* strides))handler;
- (NSNumber*)objectAtIndexedSubscript:(NSInteger)idx;
- (void)setObject:(NSNumber*)obj atIndexedSubscript:(NSInteger)idx;
@end

@interface MLFeatureValue : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) MLFeatureType type;
@property(readonly, nonatomic, nullable) MLMultiArray* multiArrayValue;
@property(readonly, nonatomic) int64_t int64Value;
@property(readonly, nonatomic) double doubleValue;
+ (instancetype)featureValueWithMultiArray:(MLMultiArray*)value;
+ (instancetype)featureValueWithInt64:(int64_t)value;
@end

@interface MLDictionaryFeatureProvider : NSObject <MLFeatureProvider>
ML_DECL_IMPL
@property(readonly, nonatomic) NSDictionary<NSString*, MLFeatureValue*>* dictionary;
- (nullable instancetype)initWithDictionary:(NSDictionary<NSString*, id>*)dictionary
                                      error:(NSError* _Nullable* _Nullable)error;
- (nullable MLFeatureValue*)objectForKeyedSubscript:(NSString*)featureName;
@end

API_AVAILABLE(macos(15.0))
@interface MLState : NSObject
ML_DECL_IMPL
- (void)getMultiArrayForStateNamed:(NSString*)stateName
                           handler:(void(NS_NOESCAPE ^)(MLMultiArray* buffer))handler;
- (instancetype)init NS_UNAVAILABLE;
@end

@interface MLMultiArrayConstraint : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSArray<NSNumber*>* shape;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@end
API_AVAILABLE(macos(15.0))
@interface MLStateConstraint : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSArray<NSNumber*>* bufferShape;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@end
@interface MLFeatureDescription : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSString* name;
@property(readonly, nonatomic) MLFeatureType type;
@property(readonly, nonatomic, getter=isOptional) BOOL optional;
@property(readonly, nonatomic, nullable) MLMultiArrayConstraint* multiArrayConstraint;
@property(readonly, nonatomic, nullable) MLStateConstraint* stateConstraint API_AVAILABLE(macos(15.0));
@end
@interface MLModelDescription : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSDictionary<NSString*, MLFeatureDescription*>* inputDescriptionsByName;
@property(readonly, nonatomic) NSDictionary<NSString*, MLFeatureDescription*>* outputDescriptionsByName;
@property(readonly, nonatomic)
    NSDictionary<NSString*, MLFeatureDescription*>* stateDescriptionsByName API_AVAILABLE(macos(15.0));
@end

@interface MLPredictionOptions : NSObject
ML_DECL_IMPL
@property(readwrite, nonatomic, copy) NSDictionary<NSString*, id>* outputBackings API_AVAILABLE(macos(11.0));
@end
API_AVAILABLE(macos(14.4))
@interface MLOptimizationHints : NSObject <NSCopying>
ML_DECL_IMPL
@property(readwrite, nonatomic) MLReshapeFrequencyHint reshapeFrequency;
@property(readwrite, nonatomic) MLSpecializationStrategy specializationStrategy API_AVAILABLE(macos(15.0));
@end
@interface MLModelConfiguration : NSObject <NSCopying>
ML_DECL_IMPL
@property(readwrite, nonatomic, copy, nullable) NSString* modelDisplayName;
@property(readwrite, nonatomic) MLComputeUnits computeUnits;
@property(readwrite, nonatomic, copy) MLOptimizationHints* optimizationHints API_AVAILABLE(macos(15.0));
@property(readwrite, nonatomic) BOOL allowLowPrecisionAccumulationOnGPU;
#ifdef ML_DECL_METAL
@property(readwrite, nonatomic, nullable) id<MTLDevice> preferredMetalDevice;
#endif
@property(readwrite, nonatomic, copy, nullable) NSString* functionName API_AVAILABLE(macos(15.0));
@end

@interface MLModel : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) MLModelDescription* modelDescription;
@property(readonly, nonatomic) MLModelConfiguration* configuration;
+ (nullable instancetype)modelWithContentsOfURL:(NSURL*)url error:(NSError* _Nullable* _Nullable)error;
+ (nullable instancetype)modelWithContentsOfURL:(NSURL*)url
                                  configuration:(MLModelConfiguration*)configuration
                                          error:(NSError* _Nullable* _Nullable)error;
+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLModel* _Nullable model, NSError* _Nullable error))handler;
+ (void)compileModelAtURL:(NSURL*)modelURL
        completionHandler:(void (^)(NSURL* _Nullable compiledModelURL, NSError* _Nullable error))handler;
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                                   error:(NSError* _Nullable* _Nullable)error;
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                                 options:(MLPredictionOptions*)options
                                                   error:(NSError* _Nullable* _Nullable)error;
@end
API_AVAILABLE(macos(15.0))
@interface MLModel (MLState)
- (MLState*)newState;
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                                              usingState:(MLState*)state
                                                   error:(NSError* _Nullable* _Nullable)error;
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                                              usingState:(MLState*)state
                                                 options:(MLPredictionOptions*)options
                                                   error:(NSError* _Nullable* _Nullable)error;
@end

@protocol MLComputeDeviceProtocol <NSObject>
@end
@interface MLCPUComputeDevice : NSObject <MLComputeDeviceProtocol>
ML_DECL_IMPL
@end
@interface MLGPUComputeDevice : NSObject <MLComputeDeviceProtocol>
ML_DECL_IMPL
@end
@interface MLNeuralEngineComputeDevice : NSObject <MLComputeDeviceProtocol>
ML_DECL_IMPL
@property(readonly, nonatomic) NSInteger totalCoreCount;
@end
ML_DECL_EXTERN NSArray<id<MLComputeDeviceProtocol>>* MLAllComputeDevices(void) API_AVAILABLE(macos(14.0));

API_AVAILABLE(macos(14.4))
@interface MLModelStructureProgramNamedValueType : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSString* name;
@end
API_AVAILABLE(macos(14.4))
@interface MLModelStructureProgramOperation : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSString* operatorName;
@property(readonly, nonatomic) NSArray<MLModelStructureProgramNamedValueType*>* outputs;
@property(readonly, nonatomic) NSArray<MLModelStructureProgramBlock*>* blocks;
@end
API_AVAILABLE(macos(14.4))
@interface MLModelStructureProgramBlock : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSArray<MLModelStructureProgramOperation*>* operations;
@end
API_AVAILABLE(macos(14.4))
@interface MLModelStructureProgramFunction : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) MLModelStructureProgramBlock* block;
@end
API_AVAILABLE(macos(14.4))
@interface MLModelStructureProgram : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSDictionary<NSString*, MLModelStructureProgramFunction*>* functions;
@end
API_AVAILABLE(macos(14.4))
@interface MLModelStructure : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic, nullable) MLModelStructureProgram* program;
@end
API_AVAILABLE(macos(14.4))
@interface MLComputePlanCost : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) double weight;
@end
API_AVAILABLE(macos(14.4))
@interface MLComputePlanDeviceUsage : NSObject
ML_DECL_IMPL
@property(readonly, nonatomic) NSArray<id<MLComputeDeviceProtocol>>* supportedComputeDevices;
@property(readonly, nonatomic) id<MLComputeDeviceProtocol> preferredComputeDevice;
@end
API_AVAILABLE(macos(14.4))
@interface MLComputePlan : NSObject
ML_DECL_IMPL
+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLComputePlan* _Nullable computePlan, NSError* _Nullable error))handler;
- (nullable MLComputePlanCost*)estimatedCostOfMLProgramOperation:(MLModelStructureProgramOperation*)operation;
- (nullable MLComputePlanDeviceUsage*)computeDeviceUsageForMLProgramOperation:
    (MLModelStructureProgramOperation*)operation;
@property(readonly, nonatomic) MLModelStructure* modelStructure;
@end
NS_ASSUME_NONNULL_END
