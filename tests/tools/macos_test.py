"""What ./dev check macos asks of its results, shown to be able to fail."""
import pathlib
import struct
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "macos"))
import check_mach_o  # noqa: E402
import verify_declarations  # noqa: E402

TYPINGS = """
declare const MLComputeUnits: {
  CPUOnly: 0,
  All: 2,
};
declare const kIOSurfaceWidth: interop.Pointer;
declare function MLAllComputeDevices(): NSArray;
declare interface NSObjectProtocol {
  isEqual(object: interop.Object): boolean;
}
declare class NSObject extends NativeObject implements NSObjectProtocol {
  init(): this;
}
declare class MLModel extends NSObject {
  static modelWithContentsOfURLError<This extends abstract new (...args: any) => any>(this: This, url: NSURL): InstanceType<This>;

  readonly modelDescription: MLModelDescription;

  get configuration(): MLModelConfiguration;

  predictionFromFeaturesUsingStateError(inputFeatures: MLFeatureProvider, state: MLState): MLFeatureProvider;
}
"""
HEADER = """
#define ML_DECL_EXTERN extern
typedef NS_ENUM(NSInteger, MLComputeUnits) {
  MLComputeUnitsCPUOnly = 0,
  MLComputeUnitsAll = 2,
};
@class MLState;
API_AVAILABLE(macos(10.13))
@interface MLModel : NSObject
@property(readonly, nonatomic) MLModelDescription* modelDescription;
@property(readonly, nonatomic) MLModelConfiguration* configuration API_AVAILABLE(macos(11.0));
+ (nullable instancetype)modelWithContentsOfURL:(NSURL*)url error:(NSError* _Nullable* _Nullable)error;
@end
@interface MLModel (MLState)
- (BOOL)isEqual:(id)object;
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                                              usingState:(MLState*)state
                                                   error:(NSError* _Nullable* _Nullable)error;
@end
extern "C" {
extern const CFStringRef kIOSurfaceWidth;
ML_DECL_EXTERN NSArray* MLAllComputeDevices(void) API_AVAILABLE(macos(14.0));
}
"""


def unknown(header: str) -> list[str]:
    typings = verify_declarations.Typings([TYPINGS])
    return [str(d) for d in verify_declarations.declarations(header) if not verify_declarations.is_known(d, typings)]


class Declarations(unittest.TestCase):
    def test_all_are_read_and_known(self):
        self.assertEqual(len(list(verify_declarations.declarations(HEADER))), 11)
        self.assertEqual(unknown(HEADER), [])

    def expect(self, ours: str, wrong: str, finding: str) -> None:
        self.assertIn(ours, HEADER)
        self.assertEqual(unknown(HEADER.replace(ours, wrong)), [finding])

    def test_each_kind_can_be_wrong(self):
        self.expect("usingState:", "withState:", "member MLModel predictionFromFeatures:withState:error:")
        self.expect("+ (nullable", "- (nullable", "member MLModel modelWithContentsOfURL:error:")
        self.expect("- (BOOL)isEqual:", "+ (BOOL)isEqual:", "class method MLModel isEqual:")
        self.expect("* modelDescription;", "* description;", "member MLModel description")
        self.expect("UnitsAll = 2", "UnitsAll = 1 | 2", "enumerator MLComputeUnits All = 3")
        self.expect("kIOSurfaceWidth", "kIOSurfaceBreadth", "name kIOSurfaceBreadth")
        self.expect("MLAllComputeDevices", "MLComputeDevices", "name MLComputeDevices")
        self.expect("@class MLState;", "@interface MLThing : NSObject\n@end", "class MLThing")


def executable(*libraries: str, cpu: int = check_mach_o.CPU_ARM64) -> bytes:
    commands = struct.pack("<2I16x", 0x19, 24)  # a segment, as far as this reader looks
    for name in libraries:
        text = name.encode() + b"\0"
        text += b"\0" * (-len(text) % 8)
        commands += struct.pack("<6I", 0xC, 24 + len(text), 24, 0, 0, 0) + text
    return struct.pack("<8I", check_mach_o.MAGIC_64, cpu, 0, check_mach_o.EXECUTE, 1 + len(libraries), len(commands), 0, 0) + commands


class MachO(unittest.TestCase):
    def test_reads_load_commands(self):
        self.assertEqual(check_mach_o.loaded_libraries(executable("/usr/lib/a.dylib", "@rpath/b.dylib")), ["/usr/lib/a.dylib", "@rpath/b.dylib"])

    def test_refuses_what_is_no_executable_for_arm64(self):
        for data in (b"", b"\x7fELF" + bytes(60), executable("a", cpu=0x01000007)):
            with self.assertRaises(ValueError):
                check_mach_o.loaded_libraries(data)

    def test_names_what_is_missing_and_what_is_too_many(self):
        self.assertEqual(check_mach_o.differences(["a", "b"], ["a", "b"]), [])
        self.assertEqual(check_mach_o.differences(["a", "c"], ["a", "b"]), ["does not load b", "loads c, which is not on the list"])


if __name__ == "__main__":
    unittest.main()
