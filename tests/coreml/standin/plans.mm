// Stand-ins of compute devices and plans.
#include <Block.h>

#include "tests/coreml/standin/classes.h"

using namespace pd::standin;

@implementation MLCPUComputeDevice
@end
@implementation MLGPUComputeDevice
@end
@implementation MLNeuralEngineComputeDevice
@end

NSArray<id<MLComputeDeviceProtocol>>* MLAllComputeDevices(void) {
  return [NSArray arrayWithObjects:[[[MLCPUComputeDevice alloc] init] autorelease],
                                   [[[MLNeuralEngineComputeDevice alloc] init] autorelease], nil];
}

namespace {
struct OpImpl {
  std::string type, result, device;
};
struct ListImpl {
  NSObject* object = nil;  // what it holds: a dictionary, an array, another of these classes
  ~ListImpl() { [object release]; }
};
struct PlanImpl {
  MLModelStructure* structure = nil;
  Fault fault;
  ~PlanImpl() { [structure release]; }
};

template <class Class>
Class* Holder(NSObject* object) {
  Class* made = [[[Class alloc] init] autorelease];
  Make<ListImpl>(&made->impl_)->object = [object retain];
  return made;
}

// Constants aside, every operation on the engine but those that the fault names.
std::string DeviceOf(const std::string& type, int index, const Fault& fault) {
  if (type.find("const") != std::string::npos) return "";
  if (fault.kind == Kind::kNoUsage) return "";
  if (fault.kind == Kind::kOnCpu && index % fault.value == 0) return "cpu";
  if (fault.kind == Kind::kOnGpu && index % fault.value == 0) return "gpu";
  return "engine";
}

MLModelStructure* Structure(const std::string& compiled, const Fault& fault) {
  NSMutableDictionary* functions = [NSMutableDictionary dictionary];
  for (const auto& [name, ops] : Operations(compiled)) {
    NSMutableArray* operations = [NSMutableArray array];
    int index = 0;
    for (const Op& op : ops) {
      if (fault.kind == Kind::kNoOperations) break;
      MLModelStructureProgramOperation* operation =
          [[[MLModelStructureProgramOperation alloc] init] autorelease];
      const std::string device = DeviceOf(op.type, index, fault);
      index += device.empty() ? 0 : 1;
      *Make<OpImpl>(&operation->impl_) = {op.type, op.result, device};
      [operations addObject:operation];
    }
    MLModelStructureProgramBlock* block = Holder<MLModelStructureProgramBlock>(operations);
    if (fault.kind != Kind::kNoFunctions)
      [functions setObject:Holder<MLModelStructureProgramFunction>(block) forKey:String(name)];
  }
  return Holder<MLModelStructure>(
      fault.kind == Kind::kNoProgram ? nil : Holder<MLModelStructureProgram>(functions));
}
}  // namespace

@implementation MLModelStructure
- (void)dealloc {
  Drop<ListImpl>(impl_);
  [super dealloc];
}
- (MLModelStructureProgram*)program {
  return (MLModelStructureProgram*)Of<ListImpl>(impl_).object;
}
@end
@implementation MLModelStructureProgram
- (void)dealloc {
  Drop<ListImpl>(impl_);
  [super dealloc];
}
- (NSDictionary*)functions {
  return (NSDictionary*)Of<ListImpl>(impl_).object;
}
@end
@implementation MLModelStructureProgramFunction
- (void)dealloc {
  Drop<ListImpl>(impl_);
  [super dealloc];
}
- (MLModelStructureProgramBlock*)block {
  return (MLModelStructureProgramBlock*)Of<ListImpl>(impl_).object;
}
@end
@implementation MLModelStructureProgramBlock
- (void)dealloc {
  Drop<ListImpl>(impl_);
  [super dealloc];
}
- (NSArray*)operations {
  return (NSArray*)Of<ListImpl>(impl_).object;
}
@end
@implementation MLModelStructureProgramNamedValueType
- (void)dealloc {
  Drop<ListImpl>(impl_);
  [super dealloc];
}
- (NSString*)name {
  return (NSString*)Of<ListImpl>(impl_).object;
}
@end
@implementation MLComputePlanDeviceUsage
- (void)dealloc {
  Drop<ListImpl>(impl_);
  [super dealloc];
}
- (id<MLComputeDeviceProtocol>)preferredComputeDevice {
  return (id<MLComputeDeviceProtocol>)Of<ListImpl>(impl_).object;
}
@end
@implementation MLModelStructureProgramOperation
- (void)dealloc {
  Drop<OpImpl>(impl_);
  [super dealloc];
}
- (NSString*)operatorName {
  return String(Of<OpImpl>(impl_).type);
}
- (NSArray*)outputs {
  return [NSArray
      arrayWithObject:Holder<MLModelStructureProgramNamedValueType>(String(Of<OpImpl>(impl_).result))];
}
- (NSArray*)blocks {
  return [NSArray array];
}
@end

@implementation MLComputePlanCost
- (double)weight {
  return 0.01;
}
@end

@implementation MLComputePlan
+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLComputePlan*, NSError*))handler {
  const Fault fault = Director::The().Next(Call::kPlan);
  if (Throws(fault)) Fails(fault, NULL);
  const std::string compiled = [[url path] UTF8String];
  void (^done)(MLComputePlan*, NSError*) = (void (^)(MLComputePlan*, NSError*))Block_copy(handler);
  Director::The().Async([=] {
    @autoreleasepool {
      NSError* error = nil;
      MLComputePlan* plan = nil;
      if (!Fails(fault, &error)) {
        plan = [[[MLComputePlan alloc] init] autorelease];
        auto* impl = Make<PlanImpl>(&plan->impl_);
        impl->structure = [Structure(compiled, fault) retain];
        impl->fault = fault;
      }
      done(plan, error);
      Block_release(done);
    }
  });
}
- (void)dealloc {
  Drop<PlanImpl>(impl_);
  [super dealloc];
}
- (MLModelStructure*)modelStructure {
  return Of<PlanImpl>(impl_).structure;
}
- (MLComputePlanCost*)estimatedCostOfMLProgramOperation:(MLModelStructureProgramOperation*)operation {
  if (Of<PlanImpl>(impl_).fault.kind == Kind::kNoCosts) return nil;
  return [[[MLComputePlanCost alloc] init] autorelease];
}
- (MLComputePlanDeviceUsage*)computeDeviceUsageForMLProgramOperation:
    (MLModelStructureProgramOperation*)operation {
  const std::string& device = Of<OpImpl>(operation->impl_).device;
  if (device.empty()) return nil;
  NSObject* object = device == "cpu"   ? (NSObject*)[[[MLCPUComputeDevice alloc] init] autorelease]
                     : device == "gpu" ? (NSObject*)[[[MLGPUComputeDevice alloc] init] autorelease]
                                       : (NSObject*)[[[MLNeuralEngineComputeDevice alloc] init] autorelease];
  return Holder<MLComputePlanDeviceUsage>(object);
}
@end
