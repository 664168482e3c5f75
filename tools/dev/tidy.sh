# shellcheck shell=bash disable=SC2154  # variables shared with ./dev
# clang-tidy, as .clang-tidy says: ./dev tidy, and the stage of that name in ./dev check. A source needs 10 to 60 s.

# clang_tidy PRESET PATTERN...: the sources of a build whose paths match, as many at a time as there are processors.
clang_tidy() {
  local preset=$1 tidy=run-clang-tidy-19
  shift
  if [ "$(uname)" = Darwin ]; then tidy=run-clang-tidy; fi
  # What clang alone would say: of g++'s flags, its compiled headers, and its std::stable_sort.
  "$tidy" -quiet -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-ignored-gch -extra-arg=-Wno-deprecated-declarations -p "$root/build/$preset" -j "$(cores)" "$@"
}

# Prepares the build that compiles this source, down to the headers that it makes, and says which it is.
prepare_build() {
  case $1 in
    "$root"/fuzz/*)
      build_fuzz pd_coreml_proto >&2
      echo fuzz
      ;;
    *)
      build_targets release pd_coreml_proto >&2
      echo release
      ;;
  esac
}

tidy_all() (
  llvm_on_path
  prepare_build "$root/src/" >/dev/null
  prepare_build "$root/fuzz/" >/dev/null
  clang_tidy release "^$root/(src|tests|bench)/"
  clang_tidy fuzz "^$root/fuzz/"
)

tidy_files() (
  llvm_on_path
  local file path preset release=() fuzz=()
  for file in "$@"; do
    [ -f "$file" ] || fail "tidy $file: no such file"
    path=$(cd "$(dirname "$file")" && pwd -P)/$(basename "$file")
    preset=$(prepare_build "$path")
    grep -qF "\"$path\"" "$root/build/$preset/compile_commands.json" ||
      fail "tidy $file: nothing compiles it here; headers are looked at with the sources that include them"
    if [ "$preset" = fuzz ]; then fuzz+=("^$path\$"); else release+=("^$path\$"); fi
  done
  if [ ${#release[@]} != 0 ]; then clang_tidy release "${release[@]}"; fi
  if [ ${#fuzz[@]} != 0 ]; then clang_tidy fuzz "${fuzz[@]}"; fi
)
