#!/usr/bin/env bash
# Run from a folder that pack.sh made, on the machine with the GPU:
#   run.sh check WEIGHTS [ACTIVATIONS]     our kernels against MLX's operations (q4, q8 or f16; f16 or bf16)
#   run.sh test               every test of the device
#   run.sh bench SHAPE WEIGHTS [mlx_bench's arguments]     ours, then mlx-lm (not with PD_PEER=0)
#   run.sh engine ARGUMENTS   the program itself
#   run.sh split SHAPE WEIGHTS [mlx_bench's arguments]     prefill on the processor while the GPU decodes
set -euo pipefail
pack=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
site=${PD_SITE:-/tmp/pd-device} ptx=${PD_PTX:-$pack/ptx}

# MLX looks for the NVIDIA libraries where pip puts them, in nvidia/ beside its own folder: those of PyTorch are linked there.
if [ ! -f "$site/.complete" ]; then
  mkdir -p "$site"
  torch=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  for wheel in "$pack"/*.whl; do python3 -m zipfile -e "$wheel" "$site"; done
  tar -C "$site" -xJf "$pack/mlx-rest.tar.xz"
  mkdir -p "$site/mlx/lib"
  xz -dc "$pack/libmlx.so.xz" >"$site/mlx/lib/libmlx.so"
  tar -C "$site" -xJf "$pack/ours.tar.xz"
  chmod 755 "$site"/bin/* "$site/mlx/lib/libmlx.so"
  ln -sfn "$torch/nvidia" "$site/nvidia"
  touch "$site/.complete"
fi
mkdir -p "$ptx"
export LD_LIBRARY_PATH=$site/mlx/lib:$site/lib:${LD_LIBRARY_PATH:-} PYTHONPATH=$site PYTHONUNBUFFERED=1
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda} MLX_PTX_CACHE_DIR=$ptx
export MLX_ENABLE_CACHE_THRASHING_CHECK=0 MLX_CUDA_GRAPH_CACHE_SIZE=4000 MLX_MAX_OPS_PER_BUFFER=${MLX_MAX_OPS_PER_BUFFER:-400}

case ${1:?check, test, bench, engine or split} in
  check) "$site/bin/mlx_bench" --check --weights "$2" --activations "${3:-f16}" ;;
  test)
    status=0
    # The tests' bounds are those of full float products. What is left out fails on purpose, or runs on a processor only.
    export MLX_ENABLE_TF32=0
    "$site/bin/mlx_test" --gtest_brief=1 --gtest_filter='-GpuKernels.*:*FailureOf*:*FailureLoses*:*NotGrow*' || status=1
    "$site/bin/device_test" --gtest_brief=1 --gtest_filter='*/mlx*:PackedPrefill.*' || status=1
    exit $status
    ;;
  bench)
    "$site/bin/mlx_bench" --shape "$2" --weights "$3" "${@:4}"
    [ "${PD_PEER:-1}" = 0 ] || python3 "$pack/mlx_lm_peer.py" "$2" "$3"
    ;;
  engine) "$site/bin/pd-engine" "${@:2}" ;;
  split) "$site/bin/mlx_bench" --shape "$2" --weights "$3" --split 4096 "${@:4}" ;;
  *)
    echo "run.sh: no command '$1'" >&2
    exit 2
    ;;
esac
