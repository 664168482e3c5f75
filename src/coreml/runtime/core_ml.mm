// CoreMl with Apple's classes, as thin as possible: decisions are made in C++ files. No ARC, no libdispatch,
// no C++ exceptions, no subscripts on collections, so that it also builds for GNUstep, where tests run it
// with stand-ins.
#import <CoreML/CoreML.h>
#import <CoreVideo/CoreVideo.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "coreml/runtime/core_ml.h"
#include "coreml/runtime/retained.h"

namespace pd {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

// Error codes of Apple's domains, as numbered in their headers.
enum : NSInteger {
  kModelErrorIo = 3,          // MLModelErrorIO
  kFileNoSuchFile = 4,        // NSFileNoSuchFileError
  kFileReadCorrupt = 259,     // NSFileReadCorruptFileError
  kFileReadNoSuchFile = 260,  // NSFileReadNoSuchFileError
  kFileNoPermission = 513,    // NSFileWriteNoPermissionError
  kFileOutOfSpace = 640,      // NSFileWriteOutOfSpaceError
  kFileReadOnly = 642,        // NSFileWriteVolumeReadOnlyError
};

std::string Text(NSString* text) {
  const char* utf8 = [text UTF8String];  // nil gives nullptr
  return utf8 ? utf8 : "";
}

NSString* String(const std::string& text) { return [NSString stringWithUTF8String:text.c_str()]; }

NSURL* FileUrl(const std::filesystem::path& path) { return [NSURL fileURLWithPath:String(path.string())]; }

Code CodeOf(NSError* error) {
  const NSInteger code = [error code];
  if ([[error domain] isEqualToString:MLModelErrorDomain])
    return code == kModelErrorIo ? Code::kStale : Code::kFailed;
  if ([[error domain] isEqualToString:NSPOSIXErrorDomain]) {
    if (code == ENOMEM) return Code::kOutOfMemory;
    if (code == ENOSPC || code == EDQUOT || code == EROFS || code == EACCES) return Code::kNoSpace;
    if (code == ENOENT) return Code::kStale;
  }
  if ([[error domain] isEqualToString:NSCocoaErrorDomain]) {
    if (code == kFileOutOfSpace || code == kFileReadOnly || code == kFileNoPermission) return Code::kNoSpace;
    if (code == kFileNoSuchFile || code == kFileReadNoSuchFile || code == kFileReadCorrupt)
      return Code::kStale;
  }
  return Code::kFailed;
}

// The error's code, or that of the underlying error if its own is not specific.
Status ErrorStatus(NSError* error, const char* otherwise) {
  if (error == nil) return Status::Fail(Code::kFailed, otherwise);
  Code code = CodeOf(error);
  NSError* behind = [[error userInfo] objectForKey:NSUnderlyingErrorKey];
  for (int depth = 0; code == Code::kFailed && behind != nil && depth < 8; ++depth) {
    code = CodeOf(behind);
    behind = [[behind userInfo] objectForKey:NSUnderlyingErrorKey];
  }
  std::string message = Text([error localizedDescription]);
  return Status::Fail(code, message.empty() ? otherwise : std::move(message));
}

// Runs a block of calls and returns its status. An exception from Core ML becomes a status.
Status Guarded(Status (^calls)()) {
  NSException* caught = nil;
  @try {
    return calls();
  } @catch (NSException* exception) {
    caught = exception;
  } @catch (...) {  // Apple's frameworks also let C++ exceptions through
    return Status::Fail(Code::kFailed, "an exception that is not an NSException");
  }
  const bool memory = [[caught name] isEqualToString:NSMallocException];
  return Status::Fail(memory ? Code::kOutOfMemory : Code::kFailed, "exception: " + Text([caught reason]));
}

// Where a completion handler leaves its result. If no caller waits any more, the handler keeps it.
template <class T>
class Completion {
 public:
  // True if a caller takes the value.
  bool Finish(Status status, T value) {
    const std::lock_guard guard(mutex_);
    if (abandoned_) return false;
    status_ = std::move(status);
    value_ = std::move(value);
    done_ = true;
    changed_.notify_all();
    return true;
  }
  Status Wait(const CancelCheck& cancelled, T* value) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kPollInterval, [&] { return done_; }))
      if (cancelled && cancelled()) {
        abandoned_ = true;
        return Status::Fail(Code::kCancelled, "cancelled");
      }
    *value = std::move(value_);
    return std::move(status_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false, abandoned_ = false;
  Status status_;
  T value_{};
};

mil::Dims Numbers(NSArray* numbers) {
  mil::Dims dims;
  for (NSNumber* number in numbers) dims.push_back([number integerValue]);
  return dims;
}

NSArray* Array(const std::vector<int64_t>& numbers) {
  NSMutableArray* array = [NSMutableArray array];
  for (const int64_t number : numbers) [array addObject:[NSNumber numberWithLongLong:number]];
  return array;
}

// Halves in a pixel buffer over an IOSurface: one row for each line of the last axis.
class PixelSurface final : public Surface {
 public:
  static std::unique_ptr<Surface> Make(const mil::Dims& shape) {
    if (shape.empty()) return nullptr;
    int64_t height = 1;
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) height *= shape[axis];
    std::unique_ptr<PixelSurface> surface(new PixelSurface(shape));
    NSDictionary* attributes =
        [NSDictionary dictionaryWithObject:[NSDictionary dictionary]
                                    forKey:(NSString*)kCVPixelBufferIOSurfacePropertiesKey];
    if (CVPixelBufferCreate(nullptr, size_t(shape.back()), size_t(height),
                            kCVPixelFormatType_OneComponent16Half, (CFDictionaryRef)attributes,
                            &surface->buffer_) != kCVReturnSuccess)
      return nullptr;
    const auto pitch = int64_t(CVPixelBufferGetBytesPerRow(surface->buffer_) / sizeof(F16));
    surface->strides_.assign(shape.size(), 1);
    for (size_t axis = shape.size() - 1; axis-- > 0;)
      surface->strides_[axis] =
          axis + 2 == shape.size() ? pitch : surface->strides_[axis + 1] * shape[axis + 1];
    surface->array_ =
        Retained<MLMultiArray*>::Adopt([[MLMultiArray alloc] initWithPixelBuffer:surface->buffer_
                                                                           shape:Array(shape)]);
    // An array whose strides differ from the buffer's rows would be read wrongly.
    if (!surface->array_) return nullptr;
    const mil::Dims seen = Numbers([surface->array_.get() strides]);
    if (seen.size() != shape.size()) return nullptr;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] > 1 && seen[axis] != surface->strides_[axis]) return nullptr;
    return surface;
  }
  ~PixelSurface() override {
    @autoreleasepool {
      array_ = {};
      if (buffer_) CVPixelBufferRelease(buffer_);
    }
  }

  const mil::Dims& shape() const override { return shape_; }
  const std::vector<int64_t>& strides() const override { return strides_; }
  const F16* Lock() override {
    if (CVPixelBufferLockBaseAddress(buffer_, kCVPixelBufferLock_ReadOnly) != kCVReturnSuccess)
      return nullptr;
    return static_cast<const F16*>(CVPixelBufferGetBaseAddress(buffer_));
  }
  void Unlock() override { CVPixelBufferUnlockBaseAddress(buffer_, kCVPixelBufferLock_ReadOnly); }
  bool FillWithNan() override {
    if (CVPixelBufferLockBaseAddress(buffer_, 0) != kCVReturnSuccess) return false;
    std::memset(CVPixelBufferGetBaseAddress(buffer_), 0xFF,
                CVPixelBufferGetBytesPerRow(buffer_) * CVPixelBufferGetHeight(buffer_));
    CVPixelBufferUnlockBaseAddress(buffer_, 0);
    return true;
  }
  MLMultiArray* array() const { return array_.get(); }

 private:
  explicit PixelSurface(mil::Dims shape) : shape_(std::move(shape)) {}

  mil::Dims shape_;
  std::vector<int64_t> strides_;
  CVPixelBufferRef buffer_ = nullptr;
  Retained<MLMultiArray*> array_;
};

struct KeptState final : ModelState {
  explicit KeptState(Retained<MLState*> made) : state(std::move(made)) {}
  ~KeptState() override {
    @autoreleasepool {
      state = {};
    }
  }
  Retained<MLState*> state;
};

Status ReadShape(const std::string& name, NSArray* shape, MLMultiArrayDataType type,
                 std::map<std::string, mil::Dims>& shapes) {
  if (type != MLMultiArrayDataTypeFloat16 || [shape count] == 0)
    return Status::Fail(Code::kBadResult, "'" + name + "' is not an array of halves with a fixed shape");
  shapes[name] = Numbers(shape);
  return {};
}

Status ReadFeatures(NSDictionary* descriptions, std::map<std::string, mil::Dims>& shapes) {
  for (NSString* name in descriptions) {
    MLMultiArrayConstraint* constraint = [[descriptions objectForKey:name] multiArrayConstraint];
    if (Status status = ReadShape(Text(name), [constraint shape], [constraint dataType], shapes);
        !status.ok())
      return status;
  }
  return {};
}

Status ReadInterface(MLModel* model, FunctionInterface& interface) {
  MLModelDescription* description = [model modelDescription];
  Status status = ReadFeatures([description inputDescriptionsByName], interface.inputs);
  if (status.ok()) status = ReadFeatures([description outputDescriptionsByName], interface.outputs);
  NSDictionary* states = [description stateDescriptionsByName];
  for (NSString* name in states) {
    MLStateConstraint* constraint = [[states objectForKey:name] stateConstraint];
    if (status.ok())
      status = ReadShape(Text(name), [constraint bufferShape], [constraint dataType], interface.states);
  }
  return status;
}

class Function final : public LoadedFunction {
 public:
  Function(Retained<MLModel*> model, FunctionInterface interface)
      : model_(std::move(model)), interface_(std::move(interface)) {}
  ~Function() override {
    @autoreleasepool {
      model_ = {};
    }
  }

  const FunctionInterface& Interface() const override { return interface_; }

  Status Predict(const HalfTensors& inputs, const std::map<std::string, Surface*>& surfaces,
                 ModelState* state, std::map<std::string, Result>* results) override {
    @autoreleasepool {
      return Guarded(^Status {
        MLDictionaryFeatureProvider* features = nil;
        if (Status status = Wrap(inputs, &features); !status.ok()) return status;
        MLPredictionOptions* options = [[[MLPredictionOptions alloc] init] autorelease];
        NSMutableDictionary* backings = [NSMutableDictionary dictionary];
        for (const auto& [name, surface] : surfaces)
          [backings setObject:static_cast<PixelSurface*>(surface)->array() forKey:String(name)];
        [options setOutputBackings:backings];
        NSError* error = nil;
        id<MLFeatureProvider> made = nil;
        if (state == nullptr)
          made = [model_.get() predictionFromFeatures:features options:options error:&error];
        else
          made = [model_.get() predictionFromFeatures:features
                                           usingState:static_cast<KeptState*>(state)->state.get()
                                              options:options
                                                error:&error];
        if (made == nil) return ErrorStatus(error, "the prediction returned nothing");
        for (NSString* name in [made featureNames])
          Read([[made featureValueForName:name] multiArrayValue], Text(name), surfaces, *results);
        return Status{};
      });
    }
  }

  Status NewState(std::unique_ptr<ModelState>* state) override {
    @autoreleasepool {
      return Guarded(^Status {
        auto made = Retained<MLState*>::Adopt([model_.get() newState]);
        if (!made) return Status::Fail(Code::kFailed, "no states were created");
        *state = std::make_unique<KeptState>(std::move(made));
        return Status{};
      });
    }
  }

 private:
  // Wraps the caller's memory, which lives as long as its owner and the call.
  static Status Wrap(const HalfTensors& inputs, MLDictionaryFeatureProvider** features) {
    NSMutableDictionary* values = [NSMutableDictionary dictionary];
    NSError* error = nil;
    for (const auto& [name, tensor] : inputs) {
      const std::shared_ptr<const void> owner = tensor.owner;
      MLMultiArray* array = [[[MLMultiArray alloc] initWithDataPointer:const_cast<F16*>(tensor.data)
                                                                 shape:Array(tensor.shape)
                                                              dataType:MLMultiArrayDataTypeFloat16
                                                               strides:Array(tensor.strides)
                                                           deallocator:^(void*) {
                                                             static_cast<void>(owner);
                                                           }
                                                                 error:&error] autorelease];
      if (array == nil) return ErrorStatus(error, "an input could not be wrapped");
      [values setObject:[MLFeatureValue featureValueWithMultiArray:array] forKey:String(name)];
    }
    *features = [[[MLDictionaryFeatureProvider alloc] initWithDictionary:values error:&error] autorelease];
    return *features == nil ? ErrorStatus(error, "the inputs could not be passed") : Status{};
  }

  // An object other than the offered one has other memory, however similar it looks.
  static void Read(MLMultiArray* array, const std::string& name,
                   const std::map<std::string, Surface*>& surfaces, std::map<std::string, Result>& results) {
    if (array == nil) return;  // missing: the caller will notice
    Result& result = results[name];
    const auto offered = surfaces.find(name);
    if (offered != surfaces.end() && static_cast<PixelSurface*>(offered->second)->array() == array) {
      result.in_surface = true;
      return;
    }
    result.half = [array dataType] == MLMultiArrayDataTypeFloat16;
    result.shape = Numbers([array shape]);
    result.strides = Numbers([array strides]);
    const auto bytes = std::make_shared<std::vector<std::byte>>();
    [array getBytesWithHandler:^(const void* data, NSInteger size) {
      const auto* first = static_cast<const std::byte*>(data);
      bytes->assign(first, first + size);
    }];
    result.bytes = bytes;
  }

  Retained<MLModel*> model_;
  FunctionInterface interface_;
};

MLModelConfiguration* Configuration(const std::string& function, Units units) {
  MLModelConfiguration* configuration = [[[MLModelConfiguration alloc] init] autorelease];
  [configuration
      setComputeUnits:units == Units::kCpuOnly ? MLComputeUnitsCPUOnly : MLComputeUnitsCPUAndNeuralEngine];
  if (function != kDefaultFunction) [configuration setFunctionName:String(function)];
  MLOptimizationHints* hints = [[[MLOptimizationHints alloc] init] autorelease];
  [hints setReshapeFrequency:MLReshapeFrequencyHintInfrequent];  // shapes are fixed
  [hints setSpecializationStrategy:MLSpecializationStrategyFastPrediction];
  [configuration setOptimizationHints:hints];
  return configuration;
}

std::string DeviceName(id<MLComputeDeviceProtocol> device) {
  if ([device isKindOfClass:[MLNeuralEngineComputeDevice class]]) return "neural_engine";
  if ([device isKindOfClass:[MLGPUComputeDevice class]]) return "gpu";
  if ([device isKindOfClass:[MLCPUComputeDevice class]]) return "cpu";
  return "unknown";
}

// "const" and "constexpr_..." after the name of an opset.
bool IsConstant(const std::string& type) {
  const size_t dot = type.rfind('.');
  return type.compare(dot == std::string::npos ? 0 : dot + 1, 5, "const") == 0;
}

void AddOperations(MLComputePlan* plan, MLModelStructureProgramBlock* block, Placement& placement) {
  for (MLModelStructureProgramOperation* operation in [block operations]) {
    PlannedOp op;
    op.type = Text([operation operatorName]);
    if (IsConstant(op.type)) continue;
    op.result = Text([[[operation outputs] firstObject] name]);
    op.device = DeviceName([[plan computeDeviceUsageForMLProgramOperation:operation] preferredComputeDevice]);
    op.cost = [[plan estimatedCostOfMLProgramOperation:operation] weight];
    placement.Add(std::move(op));
    for (MLModelStructureProgramBlock* inner in [operation blocks]) AddOperations(plan, inner, placement);
  }
}

class SystemClasses final : public CoreMl {
 public:
  Status Compile(const std::filesystem::path& package, const CancelCheck& cancelled,
                 std::filesystem::path* compiled) override {
    @autoreleasepool {
      const auto completion = std::make_shared<Completion<std::filesystem::path>>();
      const Status begun = Guarded(^Status {
        [MLModel compileModelAtURL:FileUrl(package)
                 completionHandler:^(NSURL* url, NSError* error) {
                   const std::filesystem::path path = Text([url path]);
                   const Status status =
                       path.empty() ? ErrorStatus(error, "the compiler returned nothing") : Status{};
                   std::error_code ignored;
                   if (!completion->Finish(status, path) && !path.empty())
                     std::filesystem::remove_all(path, ignored);
                 }];
        return Status{};
      });
      return begun.ok() ? completion->Wait(cancelled, compiled) : begun;
    }
  }

  Status Load(const std::filesystem::path& compiled, const std::string& function, Units units,
              const CancelCheck& cancelled, std::unique_ptr<LoadedFunction>* loaded) override {
    @autoreleasepool {
      const auto completion = std::make_shared<Completion<Retained<MLModel*>>>();
      Status status = Guarded(^Status {
        [MLModel loadContentsOfURL:FileUrl(compiled)
                     configuration:Configuration(function, units)
                 completionHandler:^(MLModel* model, NSError* error) {
                   completion->Finish(model == nil ? ErrorStatus(error, "nothing was loaded") : Status{},
                                      Retained<MLModel*>::Share(model));
                 }];
        return Status{};
      });
      Retained<MLModel*> model;
      if (status.ok()) status = completion->Wait(cancelled, &model);
      FunctionInterface interface;
      if (status.ok()) status = ReadInterface(model.get(), interface);
      if (status.ok()) *loaded = std::make_unique<Function>(std::move(model), std::move(interface));
      return status;
    }
  }

  Status Plan(const std::filesystem::path& compiled, const std::string& function,
              const CancelCheck& cancelled, Placement* placement) override {
    @autoreleasepool {
      const auto completion = std::make_shared<Completion<Retained<MLComputePlan*>>>();
      Status status = Guarded(^Status {
        [MLComputePlan loadContentsOfURL:FileUrl(compiled)
                           configuration:Configuration(function, Units::kCpuAndNeuralEngine)
                       completionHandler:^(MLComputePlan* plan, NSError* error) {
                         completion->Finish(plan == nil ? ErrorStatus(error, "there is no plan") : Status{},
                                            Retained<MLComputePlan*>::Share(plan));
                       }];
        return Status{};
      });
      Retained<MLComputePlan*> plan;
      if (status.ok()) status = completion->Wait(cancelled, &plan);
      if (!status.ok()) return status;
      MLComputePlan* held = plan.get();
      return Guarded(^Status {
        NSDictionary* functions = [[[held modelStructure] program] functions];
        MLModelStructureProgramFunction* planned = [functions objectForKey:String(function)];
        if (planned == nil) return Status::Fail(Code::kFailed, "the plan does not name the function");
        AddOperations(held, [planned block], *placement);
        return Status{};
      });
    }
  }

  std::unique_ptr<Surface> MakeSurface(const mil::Dims& shape) override {
    @autoreleasepool {
      __block std::unique_ptr<Surface> made;
      const Status status = Guarded(^Status {
        made = PixelSurface::Make(shape);
        return Status{};
      });
      return status.ok() ? std::move(made) : nullptr;
    }
  }

  bool HasNeuralEngine() override {
    @autoreleasepool {
      for (id<MLComputeDeviceProtocol> device in MLAllComputeDevices())
        if (DeviceName(device) == "neural_engine") return true;
      return false;
    }
  }
};

}  // namespace

std::unique_ptr<CoreMl> MakeCoreMl() { return std::make_unique<SystemClasses>(); }

}  // namespace pd
