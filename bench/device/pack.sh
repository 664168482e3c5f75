#!/usr/bin/env bash
# pack.sh FOLDER [GENERATION]: everything that run.sh needs on a machine with an NVIDIA GPU and no package registry.
# GENERATION is the GPU's compute capability without the dot: 90 (Hopper) unless given.
set -euo pipefail
out=${1:?usage: pack.sh FOLDER [GENERATION]} generation=${2:-90}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
python=3.12 # of the machine that runs it
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(cd "$out" && pwd -P)

cd "$root"
# Tests are listed when they run: this machine may have no NVIDIA libraries, without which they do not start.
cmake -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=Release -DPD_MLX=cuda -DPD_MLX_ROOT="${PD_MLX_ROOT:-}" \
  -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST >/dev/null
ninja -C build/cuda pd-engine mlx_bench mlx_test device_test
mlx=${PD_MLX_ROOT:-$(echo build/cuda/_mlx/mlx-cuda-13-*)}

# MLX without the machine code of other generations: 146 MB become 14. Takes minutes, and stays the same.
version=$(sed -n 's/^set(PD_MLX_VERSION \(.*\))/\1/p' cmake/FetchMlxWheel.cmake)
if [ "$(cat "$out/mlx.version" 2>/dev/null)" != "$version $generation" ]; then
  cp "$mlx/mlx/lib/libmlx.so" "$work/libmlx.so"
  strip --strip-unneeded "$work/libmlx.so"
  python3 "$here/trim_fatbin.py" "$work/libmlx.so" "$work/trimmed.so" "$generation"
  xz -9e -T1 --stdout "$work/trimmed.so" >"$out/libmlx.so.xz"
  tar -C "$mlx" -cJf "$out/mlx-rest.tar.xz" --exclude=mlx/lib/libmlx.so mlx mlx_cuda_13.libs
  echo "$version $generation" >"$out/mlx.version"
fi

# What we built, and the libraries that a bare machine may lack.
mkdir -p "$work/bin" "$work/lib"
cp build/cuda/pd-engine build/cuda/bench/mlx_bench build/cuda/tests/mlx/mlx_test build/cuda/tests/device/device_test "$work/bin/"
strip "$work"/bin/*
for library in $(ldd "$work"/bin/* 2>/dev/null | awk '/lib(fmt|xxhash|gtest|spdlog|protobuf)/ { print $3 }' | sort -u); do
  cp "$library" "$work/lib/"
done
tar -C "$work" -cJf "$out/ours.tar.xz" bin lib

# mlx-lm and MLX's Python side, for the comparison.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version "$python" \
  --implementation cp --platform manylinux_2_35_x86_64 --dest "$out" "mlx==$version" mlx-lm
cp "$here/run.sh" "$here/mlx_lm_peer.py" "$out/"
du -sh "$out"
