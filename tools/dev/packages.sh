# shellcheck shell=bash disable=SC2154,SC2034  # variables shared with ./dev
# What this project needs from the system's package manager, as data, and its installation.

# group, Debian package, Homebrew formula (- where the system brings it), what for. Groups rust and npm count only where there is no
# cargo or npm, group pip only where python3 has no pip.
package_table() {
  cat <<'TABLE'
build  g++                 -                 C++20 compiler
build  cmake               cmake             build
build  ninja-build         ninja             build
build  ccache              ccache            fast rebuilds
build  git                 -                 repository
build  ca-certificates     -                 registries over TLS
build  python3             python3           tools and their tests
build  libfmt-dev          fmt               text formatting
build  nlohmann-json3-dev  nlohmann-json     JSON
build  libcli11-dev        cli11             command line
build  libxxhash-dev       xxhash            digests
build  protobuf-compiler   protobuf          Core ML packages
build  libprotobuf-dev     -                 Core ML packages
build  libgtest-dev        googletest        tests
build  libbenchmark-dev    google-benchmark  benchmarks
rust   cargo-web           rust              tokenizer crate
rust   rustc-web           -                 tokenizer crate
pip    python3-pip         -                 fetching the default model
test   clang-format-19     llvm@19           style checks
test   python3-venv        -                 coremltools for tests
test   shellcheck          shellcheck        style checks
test   clang-19            llvm@19           fuzzing
test   libclang-rt-19-dev  -                 fuzzing
test   gobjc++-12          -                 Core ML runtime over stand-ins
test   libobjc-12-dev      -                 Core ML runtime over stand-ins
test   libgnustep-base-dev -                 Core ML runtime over stand-ins
test   libblocksruntime-dev -                Core ML runtime over stand-ins
macos  cargo-web           -                 tokenizer crate for macOS
macos  rustc-web           -                 tokenizer crate for macOS
macos  rust-web-src        -                 standard library for macOS
npm    npm                 -                 names of Apple's SDK
check  clang-tidy-19       llvm@19           static analysis
TABLE
}

# Prints "package what for" for each package of these groups in the given column of the table.
packages_of() {
  local column=$1 group
  shift
  for group in "$@"; do
    if [ "$group" = rust ] && command -v cargo >/dev/null; then continue; fi
    if [ "$group" = npm ] && command -v npm >/dev/null; then continue; fi
    if [ "$group" = pip ] && python3 -m pip --version >/dev/null 2>&1; then continue; fi
    package_table | awk -v group="$group" -v column="$column" '
      $1 == group && $column != "-" { why = $4; for (i = 5; i <= NF; ++i) why = why " " $i; print $column, why }'
  done | sort -u -k 1,1
}

# Lines of "package what for" on stdin: those whose package is not among the words given.
not_among() {
  awk -v have="$*" 'BEGIN { n = split(have, words); for (i = 1; i <= n; ++i) seen[words[i]] } !($1 in seen)'
}

install_missing() {
  if [ "$(uname)" = Darwin ]; then
    install_with_brew "$@"
  elif command -v apt-get >/dev/null; then
    install_with_apt "$@"
  else
    note "this system has neither apt-get nor brew; what ./dev needs, by its Debian names:"
    packages_of 2 "$@" | sed 's/^/dev:   /' >&2
    fail "install these, then set PD_DEV_SKIP_DEPS=1"
  fi
}

# Says what is missing and leaves the names in $missing.
missing=()
report_missing() {
  local name why
  missing=()
  while read -r name why; do
    [ ${#missing[@]} -gt 0 ] || note "installing with $1:"
    note "  $name ($why)"
    missing+=("$name")
  done
}

install_with_apt() {
  local wanted present apt=(apt-get)
  wanted=$(packages_of 2 "$@")
  [ -n "$wanted" ] || return 0
  # shellcheck disable=SC2046  # one word a package
  present=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(echo "$wanted" | cut -d ' ' -f 1) 2>/dev/null |
    awk '$1 == "installed" { print $2 }' || true)
  # shellcheck disable=SC2086  # one word a package
  report_missing apt-get < <(echo "$wanted" | not_among $present)
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      fail "not root and no sudo here; as root, run: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    apt=(sudo apt-get)
  fi
  mkdir -p "$root/build"
  export DEBIAN_FRONTEND=noninteractive
  "${apt[@]}" -qq update >&2 || note "apt-get update failed (above); trying with the package lists that are here"
  "${apt[@]}" -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}" >"$root/build/apt.log" 2>&1 || {
    tail -n 20 "$root/build/apt.log" >&2
    fail "apt-get could not install: ${missing[*]} (its last lines are above, all of them in build/apt.log)"
  }
}

install_with_brew() {
  local wanted
  xcode-select -p >/dev/null 2>&1 || fail "no C++ compiler here; run: xcode-select --install"
  command -v brew >/dev/null || fail "no brew here; install Homebrew first, then run this again"
  wanted=$(packages_of 3 "$@")
  [ -n "$wanted" ] || return 0
  # shellcheck disable=SC2046  # one word a formula
  report_missing brew < <(echo "$wanted" | not_among $(brew list --formula -1))
  [ ${#missing[@]} -gt 0 ] || return 0
  brew install --quiet "${missing[@]}" >&2 || fail "brew could not install: ${missing[*]} (its message is above)"
}
