# shellcheck shell=bash disable=SC2154  # variables shared with ./dev
# The product for arm64 macOS, compiled and linked on Linux to build/macos/pd-engine. It cannot run here: what this shows is that
# the code for Macs compiles, that every symbol it needs is in MLX's library for Metal or in what macOS has, and that what it calls
# of Apple's frameworks is there by name.

macos=$root/build/macos

# A folder of what the pins in a file name: fetch_once FOLDER PIN COMMAND... runs the command when the folder is absent or older.
fetch_once() {
  local folder=$1 pin=$2
  shift 2
  if [ "$folder/.complete" -nt "$pin" ]; then return; fi
  rm -rf "$folder"
  mkdir -p "$folder"
  "$@" "$folder" "$pin"
  touch "$folder/.complete"
}

# pip does the download, so that its configuration counts.
fetch_zig() {
  note "fetching zig, a compiler for macOS (80 MB, once)"
  python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --require-hashes \
    --dest "$1" --requirement "$2" >&2 || fail "pip could not fetch zig, see above"
  python3 -m zipfile -e "$1"/*.whl "$1"
  rm "$1"/*.whl
  chmod +x "$1/ziglang/zig"
}

# protobuf's sources, by way of cargo.
fetch_sources() {
  "$root/tools/macos/cargo" vendor --quiet --locked --manifest-path "$root/tools/macos/sources/Cargo.toml" "$1" >/dev/null ||
    fail "cargo could not fetch protobuf's sources, see above"
}

# npm checks what it fetches against what its registry says; the pin is ours.
fetch_typings() {
  local package digest frameworks
  read -r package digest frameworks < <(grep -v '^#' "$2")
  npm pack --silent --ignore-scripts --pack-destination "$1" "$package" >/dev/null || fail "npm could not fetch $package, see above"
  # shellcheck disable=SC2086  # one word a framework
  python3 - "$digest" "$1"/*.tgz $frameworks <<'PYTHON' || fail "$package is not what tools/macos/typings.txt pins"
import base64, hashlib, pathlib, sys, tarfile
digest, archive = sys.argv[1], pathlib.Path(sys.argv[2])
if digest != "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode():
    sys.exit(1)
with tarfile.open(archive) as members:
    for name in sys.argv[3:]:
        (archive.parent / f"{name}.d.ts").write_bytes(members.extractfile(f"package/types/{name}.d.ts").read())
PYTHON
  rm "$1"/*.tgz
}

fetch_for_macos() {
  fetch_once "$macos/zig" "$root/tools/macos/zig.txt" fetch_zig
  fetch_once "$macos/vendor" "$root/tools/macos/sources/Cargo.lock" fetch_sources
  fetch_once "$macos/typings" "$root/tools/macos/typings.txt" fetch_typings
  # Headers of libraries that are headers only, without the rest of /usr/include, which is this machine's.
  mkdir -p "$macos/headers"
  cp -ru /usr/include/fmt /usr/include/nlohmann /usr/include/CLI /usr/include/xxhash.h "$macos/headers/"
  configure macos
}

check_names() { python3 "$root/tools/macos/verify_declarations.py" "$root/tools/macos/stubs" "$macos/typings"; }
check_binary() { python3 "$root/tools/macos/check_mach_o.py" build/macos/pd-engine "$root/tools/macos/libraries.txt"; }

# part NAME COMMAND...: timed; the times are printed together at the end. Not in a condition, which would switch off `set -e`.
part() {
  local name=$1 start=$SECONDS
  shift
  "$@"
  part_times+="${part_times:+, }$name $(minutes $((SECONDS - start)))"
}

build_for_macos() {
  local part_times=
  install_packages build pip macos npm
  export PD_ZIG=$macos/zig/ziglang ZIG_GLOBAL_CACHE_DIR=$macos/zig-cache ZIG_LOCAL_CACHE_DIR=$macos/zig-cache
  # The compiler is a script, so its name and time say nothing; what it runs is pinned.
  CCACHE_COMPILERCHECK="string:$(cat "$root/tools/macos/zig.txt" "$root/tools/macos/zig-clang++")"
  export CCACHE_COMPILERCHECK
  part fetching fetch_for_macos
  part names check_names
  part "Rust crate" build_targets macos pd_text_crate_build
  part C++ build_targets macos pd-engine
  part libraries check_binary
  note "minutes: $part_times"
}
