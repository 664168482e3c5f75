# shellcheck shell=bash disable=SC2154,SC2034  # variables shared with ./dev
# What every command of ./dev uses. Expects $root, the repository.

product=$root/build/release/pd-engine
model_cache=${PD_ENGINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pd-engine}
default_model=$model_cache/SmolLM2-135M-Instruct.Q4_1.gguf

# One cache entry for every clone: paths below the repository count as relative.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then PATH=$HOME/.cargo/bin:$PATH; fi

note() { printf 'dev: %s\n' "$*" >&2; }

fail() {
  note "$@"
  exit 1
}

cores() { getconf _NPROCESSORS_ONLN; }

# Makes sure that the packages of these groups (tools/dev/packages.sh) are there. Costs nothing once they were.
install_packages() {
  local stamp
  stamp="$root/build/.packages-$(echo "$*" | tr ' ' '-')"
  if [ "${PD_DEV_SKIP_DEPS:-}" = 1 ] || [ "$stamp" -nt "$root/tools/dev/packages.sh" ]; then return; fi
  # shellcheck source=tools/dev/packages.sh
  . "$root/tools/dev/packages.sh"
  install_missing "$@"
  mkdir -p "$root/build"
  touch "$stamp"
}

# configure PRESET [CMAKE_ARGUMENT...]: once, and again when the presets or the model's place change; ninja sees to every other change.
configure() {
  local stamp=$root/build/$1/.configured
  if [ "$stamp" -nt "$root/CMakePresets.json" ] && [ "$(cat "$stamp")" = "$default_model" ]; then return; fi
  (cd "$root" && cmake --preset "$@" -DPD_DEFAULT_MODEL="$default_model" >/dev/null) || fail "configuring $1 failed, see above"
  printf '%s\n' "$default_model" >"$stamp"
}

# build_targets PRESET [TARGET...]: without targets, those of the build preset.
build_targets() {
  local preset=$1 build
  shift
  configure "$preset"
  build=(cmake --build --preset "$preset" --parallel "$(cores)" ${1:+--target "$@"})
  if [ -t 1 ]; then  # ninja keeps one line of progress
    (cd "$root" && "${build[@]}") || fail "building $preset failed, see above"
  else
    (cd "$root" && "${build[@]}" -- --quiet | sed '/^ninja: no work to do\.$/d') || fail "building $preset failed, see above"
  fi
}

# Homebrew keeps LLVM's tools off the path; Debian names them clang-19, clang-format-19, run-clang-tidy-19.
llvm_on_path() {
  if [ "$(uname)" = Darwin ]; then PATH=$(brew --prefix llvm@19)/bin:$PATH; fi
}

# build_fuzz [TARGET...]: as build_targets, with clang, which is on the path.
build_fuzz() {
  if [ "$(uname)" = Darwin ]; then configure fuzz -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++; fi
  build_targets fuzz "$@"
}

# Builds $product if a source is newer than the last build. When nothing changed this is one walk over the sources.
build_product() {
  local stamp=$root/build/release/.product start sources
  sources=("$root/CMakeLists.txt" "$root/CMakePresets.json" "$root/cmake" "$root/src" "$root/crates")
  if [ -x "$product" ] && [ -f "$stamp" ] && [ -z "$(find "${sources[@]}" -newer "$stamp" -print)" ]; then return; fi
  install_packages build rust
  [ -x "$product" ] || note "building pd-engine: about 4 minutes the first time on 2 cores, this machine has $(cores)" \
    "(C++ 3 minutes, the Rust crate of tokenizers and templates 1; seconds after a change)"
  start=$root/build/.start
  mkdir -p "$root/build"
  touch "$start"  # a source saved during the build counts as newer
  build_targets release pd-engine
  mv "$start" "$stamp"
}
