// Stand-ins of models: compiling, loading, predicting.
#include <Block.h>

#include "tests/coreml/standin/classes.h"

using namespace pd::standin;

namespace pd::standin {
MLMultiArrayDataType TypeOf(DataType type) {
  return type == DataType::kF16   ? MLMultiArrayDataTypeFloat16
         : type == DataType::kI32 ? MLMultiArrayDataTypeInt32
                                  : MLMultiArrayDataTypeFloat32;
}
}  // namespace pd::standin

namespace {
struct FeatureImpl {
  Dims shape;
  MLMultiArrayDataType type;
};
// Of MLMultiArrayConstraint and MLStateConstraint.
template <class Constraint>
Constraint* MakeConstraint(const FeatureImpl& feature) {
  Constraint* constraint = [[[Constraint alloc] init] autorelease];
  *Make<FeatureImpl>(&constraint->impl_) = feature;
  return constraint;
}
}  // namespace

@implementation MLMultiArrayConstraint
- (void)dealloc {
  Drop<FeatureImpl>(impl_);
  [super dealloc];
}
- (NSArray*)shape {
  return Array(Of<FeatureImpl>(impl_).shape);
}
- (MLMultiArrayDataType)dataType {
  return Of<FeatureImpl>(impl_).type;
}
@end
@implementation MLStateConstraint
- (void)dealloc {
  Drop<FeatureImpl>(impl_);
  [super dealloc];
}
- (NSArray*)bufferShape {
  return Array(Of<FeatureImpl>(impl_).shape);
}
- (MLMultiArrayDataType)dataType {
  return Of<FeatureImpl>(impl_).type;
}
@end
@implementation MLFeatureDescription
- (void)dealloc {
  Drop<FeatureImpl>(impl_);
  [super dealloc];
}
- (MLMultiArrayConstraint*)multiArrayConstraint {
  return MakeConstraint<MLMultiArrayConstraint>(Of<FeatureImpl>(impl_));
}
- (MLStateConstraint*)stateConstraint {
  return MakeConstraint<MLStateConstraint>(Of<FeatureImpl>(impl_));
}
@end

namespace {
NSDictionary* Describe(const std::vector<pd::mil::NamedType>& features) {
  NSMutableDictionary* descriptions = [NSMutableDictionary dictionary];
  for (const pd::mil::NamedType& feature : features) {
    MLFeatureDescription* description = [[[MLFeatureDescription alloc] init] autorelease];
    *Make<FeatureImpl>(&description->impl_) = {feature.type.shape, TypeOf(feature.type.dtype)};
    [descriptions setObject:description forKey:String(feature.name)];
  }
  return descriptions;
}
struct DescriptionImpl {
  NSDictionary *inputs, *outputs, *states;
};
}  // namespace

@implementation MLModelDescription
- (void)dealloc {
  auto& description = Of<DescriptionImpl>(impl_);
  [description.inputs release];
  [description.outputs release];
  [description.states release];
  Drop<DescriptionImpl>(impl_);
  [super dealloc];
}
- (NSDictionary*)inputDescriptionsByName {
  return Of<DescriptionImpl>(impl_).inputs;
}
- (NSDictionary*)outputDescriptionsByName {
  return Of<DescriptionImpl>(impl_).outputs;
}
- (NSDictionary*)stateDescriptionsByName {
  return Of<DescriptionImpl>(impl_).states;
}
@end

namespace {
struct ModelImpl {
  std::unique_ptr<Model> model;
};
struct StateImpl {
  std::shared_ptr<States> states;
};

// A result in memory of its own, laid out as the fault has it.
MLMultiArray* OwnArray(const Tensor& result, Kind kind) {
  Dims shape = result.shape, strides = pd::mil::DenseStrides(shape);
  MLMultiArrayDataType type = TypeOf(result.dtype);
  Tensor values = result;
  const bool padded = kind == Kind::kPaddedStrides || kind == Kind::kPaddedZeroStrides;
  if (padded) {
    int64_t step = (shape.back() + 31) / 32 * 32 + 32;
    for (size_t axis = shape.size() - 1; axis-- > 0;) {
      strides[axis] = step;
      step *= shape[axis];
    }
  }
  size_t elements = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) elements += size_t((shape[axis] - 1) * strides[axis]);
  if (padded) elements += 32;  // the last row is padded too
  if (kind == Kind::kWrongType) type = MLMultiArrayDataTypeFloat32;
  auto* memory = new std::vector<std::byte>(elements * ElementBytes(type));
  if (kind != Kind::kWrongType) Write(values, memory->data(), strides);
  if (kind == Kind::kNotANumber) std::memset(memory->data(), 0xFF, 2);
  if (kind == Kind::kWrongShape) shape.back() += 1;
  if (kind == Kind::kTransposedShape) std::swap(shape[1], shape[3]);
  if (kind == Kind::kZeroStrides || kind == Kind::kPaddedZeroStrides) strides.assign(shape.size(), 0);
  if (kind == Kind::kNegativeStrides) strides[1] = -strides[1];
  if (kind == Kind::kOverlappingStrides) strides[1] = 1;
  if (kind == Kind::kHugeStrides) strides[1] = int64_t(1) << 60;
  if (kind == Kind::kFewStrides) strides.pop_back();
  MLMultiArray* array = [[[MLMultiArray alloc] initWithDataPointer:memory->data()
                                                             shape:Array(shape)
                                                          dataType:type
                                                           strides:Array(strides)
                                                       deallocator:^(void*) {
                                                         delete memory;
                                                       }
                                                             error:NULL] autorelease];
  Of<ArrayImpl>(array->impl_).bytes = memory->size();
  return array;
}

bool UsesBacking(Kind kind, bool first) {
  switch (kind) {
    case Kind::kNone:
    case Kind::kUnwritten:
    case Kind::kHalfWritten:
    case Kind::kMissing:
    case Kind::kExtra:
    case Kind::kSlow:
      return true;
    case Kind::kIgnoreOne:
      return !first;
    default:
      return false;
  }
}

// What a prediction returns for a result.
MLMultiArray* Deliver(const Tensor& result, MLMultiArray* backing, Kind kind, bool first) {
  if (backing == nil || !UsesBacking(kind, first)) return OwnArray(result, kind);
  auto& array = Of<ArrayImpl>(backing->impl_);
  if (array.shape != result.shape || array.type != TypeOf(result.dtype)) return OwnArray(result, kind);
  if (array.buffer && CVPixelBufferIsLocked(array.buffer)) ++Director::The().touched;
  Tensor written = result;
  if (kind == Kind::kHalfWritten) written.shape[1] /= 2;
  if (kind != Kind::kUnwritten) Write(written, static_cast<std::byte*>(array.data), array.strides);
  return backing;
}

id<MLFeatureProvider> Predict(const Model& model, id<MLFeatureProvider> input, States* states,
                              MLPredictionOptions* options, NSError** error) {
  const Fault fault = Director::The().Next(Call::kPredict);
  if (Fails(fault, error)) return nil;
  std::map<std::string, Tensor> inputs;
  for (NSString* name in [input featureNames]) {
    const auto& array = Of<ArrayImpl>([[input featureValueForName:name] multiArrayValue]->impl_);
    inputs[[name UTF8String]] = {DataType::kF16, array.shape, array.strides,
                                 static_cast<const std::byte*>(array.data), nullptr};
  }
  std::string why;
  const auto results = model.Predict(inputs, states, &why);
  if (results.empty()) {
    if (error) *error = Unspecific(String(why));
    return nil;
  }
  NSMutableDictionary* values = [NSMutableDictionary dictionary];
  bool first = true;
  for (const auto& [name, result] : results) {
    MLMultiArray* backing = [[options outputBackings] objectForKey:String(name)];
    MLMultiArray* array = Deliver(result, backing, fault.kind, first);
    if (fault.kind != Kind::kMissing || !first)
      [values setObject:[MLFeatureValue featureValueWithMultiArray:array] forKey:String(name)];
    if (fault.kind == Kind::kExtra)
      [values setObject:[MLFeatureValue featureValueWithMultiArray:array] forKey:@"extra"];
    first = false;
  }
  return [[[MLDictionaryFeatureProvider alloc] initWithDictionary:values error:NULL] autorelease];
}
}  // namespace

@implementation MLState
- (void)dealloc {
  Drop<StateImpl>(impl_);
  [super dealloc];
}
@end

@implementation MLModel
+ (void)compileModelAtURL:(NSURL*)url completionHandler:(void (^)(NSURL*, NSError*))handler {
  const Fault fault = Director::The().Next(Call::kCompile);
  if (Throws(fault)) Fails(fault, NULL);
  const std::string package = [[url path] UTF8String];
  void (^done)(NSURL*, NSError*) = (void (^)(NSURL*, NSError*))Block_copy(handler);
  Director::The().Async([=] {
    @autoreleasepool {
      NSError* error = nil;
      NSURL* made = nil;
      if (!Fails(fault, &error)) {
        const std::filesystem::path compiled = Compile(package, fault.kind == Kind::kHollow);
        if (compiled.empty())
          error = Unspecific(@"the package does not compile");
        else
          made = [NSURL fileURLWithPath:String(compiled.string())];
      }
      done(made, error);
      Block_release(done);
    }
  });
}
+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLModel*, NSError*))handler {
  const Fault fault = Director::The().Next(Call::kLoad);
  if (Throws(fault)) Fails(fault, NULL);
  const std::string compiled = [[url path] UTF8String];
  const char* name = [[configuration functionName] UTF8String];
  const std::string function = name ? name : "";
  const MLComputeUnits units = [configuration computeUnits];
  void (^done)(MLModel*, NSError*) = (void (^)(MLModel*, NSError*))Block_copy(handler);
  Director::The().Async([=] {
    @autoreleasepool {
      NSError* error = nil;
      MLModel* model = nil;
      if (!Fails(fault, &error)) {
        std::string why;
        auto loaded = Model::Load(compiled, function, units == MLComputeUnitsCPUOnly, &why);
        if (loaded) {
          model = [[[MLModel alloc] init] autorelease];
          Make<ModelImpl>(&model->impl_)->model = std::move(loaded);
        } else {
          error = ErrorOf(MLModelErrorDomain, 3,
                          [NSDictionary dictionaryWithObject:String(why) forKey:NSLocalizedDescriptionKey]);
        }
      }
      done(model, error);
      Block_release(done);
    }
  });
}
- (void)dealloc {
  Drop<ModelImpl>(impl_);
  [super dealloc];
}
- (MLModelDescription*)modelDescription {
  MLModelDescription* description = [[[MLModelDescription alloc] init] autorelease];
  const auto& model = *Of<ModelImpl>(impl_).model;
  *Make<DescriptionImpl>(&description->impl_) = {[Describe(model.inputs()) retain],
                                                 [Describe(model.outputs()) retain],
                                                 [Describe(model.states()) retain]};
  return description;
}
- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                        options:(MLPredictionOptions*)options
                                          error:(NSError**)error {
  return Predict(*Of<ModelImpl>(impl_).model, input, nullptr, options, error);
}
@end
@implementation MLModel (MLState)
- (MLState*)newState {
  NSError* error = nil;
  if (Fails(Director::The().Next(Call::kNewState), &error)) return nil;
  std::string why;
  auto states = Of<ModelImpl>(impl_).model->NewStates(&why);
  if (!states) return nil;
  MLState* state = (MLState*)[[(id)[MLState class] alloc] performSelector:@selector(init)];
  Make<StateImpl>(&state->impl_)->states = std::move(states);
  return state;
}
- (id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                     usingState:(MLState*)state
                                        options:(MLPredictionOptions*)options
                                          error:(NSError**)error {
  return Predict(*Of<ModelImpl>(impl_).model, input, Of<StateImpl>(state->impl_).states.get(), options,
                 error);
}
@end
