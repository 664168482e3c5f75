"""Compiles src/mlx/gpu/*.kernel for an NVIDIA GPU, without one: compile_kernels.py [sm_90]

Needs NVRTC and CUDA's headers, from pip (nvidia-cuda-nvrtc, nvidia-cuda-runtime, 13.*) in this Python's environment, and libcu++'s,
which MLX's CUDA wheel brings: build/cuda/_mlx, as bench/device/pack.sh fetches it. Prints for each variant the registers of a thread and
the shared memory of a group; fails when one does not compile, spills registers, or takes more than 48 KB.
"""
import ctypes
import pathlib
import re
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "src/mlx/gpu"
NVIDIA = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13"

# What MLX puts around a kernel's text, as far as the text can see it, and what gpu_kernel.cc puts before it.
PREAMBLE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda/std/cstdint>
using cuda::std::uint32_t;
struct Shape { int sizes[4]; __device__ int operator[](int i) const { return sizes[i]; } };
"""
PLACE = """
const uint3 group = blockIdx, group_count = make_uint3(gridDim.x, gridDim.y, gridDim.z);
const int thread_index = threadIdx.x;
"""


def text(name):
    return (GPU / f"{name}.kernel").read_text()


def source(inputs, outputs, body, more, constants):
    def constant(name, value):
        if isinstance(value, str):
            return f"using {name} = {value};"
        return f"constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = {int(value)};"

    parameters = []
    for name, kind in inputs:
        parameters.append(f"const {kind}* {name}")
        if f"{name}_shape" in body:
            parameters.append(f"const __grid_constant__ Shape {name}_shape")
    parameters += [f"{kind}* {name}" for name, kind in outputs]
    lines = [constant(*item) for item in constants.items()]
    return (PREAMBLE + text("dialect_cuda") + more + f"__global__ void kernel({', '.join(parameters)}) {{\n" + "\n".join(lines) + PLACE
            + body + "\n}\n")


class Compiler:
    def __init__(self, architecture):
        for builtins in (NVIDIA / "lib").glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins))  # NVRTC looks for it by name only
        self.nvrtc = ctypes.CDLL(str(NVIDIA / "lib/libnvrtc.so.13"))
        wheels = sorted(ROOT.glob("build/cuda/_mlx/*/mlx/include/cccl"))
        if not wheels:
            sys.exit("compile_kernels: no build/cuda/_mlx: configure a build there with -DPD_MLX=cuda")
        self.options = [f"--gpu-architecture={architecture}", "--std=c++17", "--device-as-default-execution-space", "--ptxas-options=-v",
                        f"-I{NVIDIA / 'include'}", f"-I{wheels[-1]}"]

    def log_of(self, code):
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.nvrtc.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None)
        options = (ctypes.c_char_p * len(self.options))(*(o.encode() for o in self.options))
        failed = self.nvrtc.nvrtcCompileProgram(program, len(options), options) != 0
        self.nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.nvrtc.nvrtcGetProgramLog(program, log)
        self.nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return failed, log.value.decode()

    def check(self, what, *parts):
        failed, log = self.log_of(source(*parts))
        if failed:
            print(f"{what}: does not compile\n{log[:4000]}")
            return False
        numbers = [max(map(int, re.findall(pattern, log)), default=0)
                   for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes spill stores")]
        print("{}: {} registers, {} bytes shared, {} spilled".format(what, *numbers))
        return numbers[1] <= 48 << 10 and numbers[2] == 0


def layout(bits, group, strips, kept):
    """As LayOut in gpu_kernels.cc."""
    width = bits or 16
    row = width * 16 + {4: 16, 8: 32, 16: 64}[width]
    stages = ((47 << 10) - kept) // (strips * 16 * (row + 2 * (max(4, 128 // group * 2) if bits else 0)))
    best = (0, 1)
    for warps in (8, 4, 2):
        depth = min(stages // warps, 4)
        if depth >= 2 and warps * (depth - 1) > best[0] * (best[1] - 1):
            best = (warps, depth)
    return best


def projections():
    shapes = ((6144, 4096, True, False, False), (4096, 14336, False, False, True), (28672, 4096, True, True, False),
              (2560, 2048, True, False, False))  # rows, columns, normed, gated, added
    for kind in ("__half", "__nv_bfloat16"):
        for bits, group in ((4, 32), (4, 64), (4, 128), (8, 32), (0, 128)):
            for rows, columns, norm, gated, added in shapes:
                for m in (1, 2, 8, 32):
                    strips = 2 if gated or m > 8 else 1
                    normed = norm and m <= 2
                    warps, depth = layout(bits, group, strips, m * (columns + 32) * 2 if normed else 0)
                    if warps == 0:
                        (warps, depth), normed = layout(bits, group, strips, 0), False
                    constants = dict(T=kind, BITS=bits, GROUP=group, ROWS=rows, IN=columns, STRIPS=strips, TILES=(m + 7) // 8,
                                     WARPS=warps, DEPTH=depth, NORMED=normed, KEPT_ROWS=m if normed else 1, GATED=gated, ACTIVATION=0,
                                     BIASED=gated, ADDED=added)
                    inputs = [(n, kind) for n in ("x", "gain", "scales", "biases", "offset", "residual")]
                    yield (f"project {kind} {bits} bits by {group}, {rows} x {columns}, {m} rows",
                           inputs + [("w", "uint32_t"), ("numbers", "float")], [("out", kind)], text("project"), text("matrix_cuda"),
                           constants)


def attentions():
    for kind in ("__half", "__nv_bfloat16", "float"):
        for width, heads, kv_heads, together in ((64, 32, 4, 4), (128, 32, 8, 4), (128, 28, 4, 7), (256, 8, 1, 4)):
            for places in (False, True):
                for parts in ("one part", "parts", "joined"):
                    one = parts == "one part"
                    stride = (heads + 2 * kv_heads) * width
                    constants = dict(T=kind, O=kind if one else "float", D=width, HEADS=heads, KV_HEADS=kv_heads, HG=together, WARPS=4,
                                     WINDOW=0, CAPPED=False, ONE_PART=one, PLACES=places, DIMS=width, Q_STRIDE=stride, Q_FIRST=0,
                                     K_STRIDE=stride, K_FIRST=heads * width, V_STRIDE=stride, V_FIRST=(heads + kv_heads) * width,
                                     Q_NORM=places, K_NORM=places)
                    inputs = ([(n, kind) for n in ("q_source", "k_source", "v_source", "q_gain", "k_gain", "cache_k", "cache_v")]
                              + [(n, "float") for n in ("angles", "numbers")] + [(n, "int") for n in ("angle", "slot", "pos", "tickets")])
                    body = text("attend") + text("join") if parts == "joined" else "\n#define parts out\n" + text("attend") + "\n#undef parts\n"
                    outputs = [("out", kind if parts == "joined" else constants["O"]), ("weight", "float")]
                    if parts == "joined":
                        outputs.append(("parts", "float"))
                    yield f"attend {kind} {heads} x {width}, {parts}, places {places}", inputs, outputs, body, text("head"), constants


def others():
    kind = "__half"
    sources = [(n, kind) for n in ("q_source", "k_source", "v_source", "q_gain", "k_gain", "cache_k", "cache_v")]
    yield ("place", sources + [("angles", "float"), ("numbers", "float"), ("angle", "int"), ("slot", "int"), ("pos", "int")],
           [("q_out", kind)], text("place"), text("head"),
           dict(T=kind, D=64, HEADS=32, KV_HEADS=4, DIMS=64, Q_STRIDE=2560, Q_FIRST=0, K_STRIDE=2560, K_FIRST=2048, V_STRIDE=2560,
                V_FIRST=2304, Q_NORM=True, K_NORM=True))
    yield ("take_rows", [("table", "uint32_t"), ("scales", kind), ("biases", kind), ("ids", "int"), ("numbers", "float")],
           [("out", kind)], text("take_rows"), "", dict(T=kind, BITS=4, GROUP=32, WIDTH=4096))
    yield "greedy", [("logits", kind)], [("tokens", "int"), ("report", "int")], text("greedy"), "", dict(T=kind)
    yield "gate", [("x", kind)], [("out", kind)], text("gate"), "", dict(T=kind, HALF=5632, ACTIVATION=0)
    yield "combine", [("part", "float"), ("weight", "float")], [("out", kind)], text("combine"), "", dict(T=kind, D=64)


def main():
    compiler = Compiler(sys.argv[1] if len(sys.argv) > 1 else "sm_90")
    cases = [*projections(), *attentions(), *others()]
    failed = [case[0] for case in cases if not compiler.check(*case)]
    print(f"{len(cases)} variants, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
